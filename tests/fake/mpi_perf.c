/*
 * Stands where an nccl-tests built with MPI would: learns rank and nodes by real MPI (-DWITH_MPI) or real PMI-2
 * (-DWITH_PMI2), then runs the model (HPSLURM_PROGRAM) in its place. Without either it is a build without MPI.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_MPI
/* Open MPI's C interface as its library exports it: no headers are needed. */
struct comm;
struct type;
extern struct comm ompi_mpi_comm_world;
extern struct type ompi_mpi_char;
int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Comm_rank(struct comm *, int *);
int MPI_Comm_size(struct comm *, int *);
int MPI_Barrier(struct comm *);
int MPI_Allgather(const void *, int, struct type *, void *, int, struct type *, struct comm *);
#endif

#ifdef WITH_PMI2
/* The interface of Slurm's libpmi2. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
int PMI2_KVS_Put(const char *key, const char *value);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *job, int source, const char *key, char *value, int longest, int *length);
#endif

#define LONGEST 64

int main(int argc, char **argv) {
    int rank = 0, size = 1, status = 0;
    char here[LONGEST] = "here", text[16];
    if (getenv("SLURMD_NODENAME"))
        strncpy(here, getenv("SLURMD_NODENAME"), LONGEST - 1);
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(&ompi_mpi_comm_world, &rank);
    MPI_Comm_size(&ompi_mpi_comm_world, &size);
#endif
#ifdef WITH_PMI2
    int spawned, number, length;
    PMI2_Init(&spawned, &size, &rank, &number);
#endif
    char *all = calloc(size, LONGEST), *list = calloc(size, LONGEST + 1);
    memcpy(all, here, LONGEST);
#ifdef WITH_MPI
    MPI_Allgather(here, LONGEST, &ompi_mpi_char, all, LONGEST, &ompi_mpi_char, &ompi_mpi_comm_world);
#endif
#ifdef WITH_PMI2
    snprintf(text, sizeof text, "host%d", rank);
    PMI2_KVS_Put(text, here);
    PMI2_KVS_Fence();
    for (int i = 0; i < size; i++) {
        snprintf(text, sizeof text, "host%d", i);
        PMI2_KVS_Get(NULL, i, text, all + i * LONGEST, LONGEST, &length);
    }
#endif
    for (int i = 0; i < size; i++)
        strcat(strcat(list, i ? "," : ""), all + i * LONGEST);
    snprintf(text, sizeof text, "%d", rank);
    setenv("HPSLURM_RANK", text, 1);
    setenv("HPSLURM_HOSTS", list, 1); /* of each rank */
    pid_t child = fork();
    if (!child) {
        execv(getenv("HPSLURM_PROGRAM"), argv);
        _exit(127);
    }
    waitpid(child, &status, 0);
#ifdef WITH_MPI
    MPI_Barrier(&ompi_mpi_comm_world);
    MPI_Finalize();
#endif
#ifdef WITH_PMI2
    PMI2_KVS_Fence();
    PMI2_Finalize();
#endif
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
