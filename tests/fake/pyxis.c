/*
 * Takes the options of pyxis from srun as pyxis does, through Slurm's real plugin interface; instead of starting a
 * container it shows them to the task, in PYXIS_GOT. -DSLURM_VERSION=0x160508 is the version that loads it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slurm's spank.h, as far as it is used here. */
struct spank_handle;
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int val, const char *optarg, int remote);
};
int spank_option_register(struct spank_handle *, struct spank_option *);
int spank_setenv(struct spank_handle *, const char *name, const char *value, int overwrite);

const char plugin_name[] = "pyxis";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION;
const unsigned int spank_plugin_version = 1;

static char got[2048];

static struct spank_option options[5];

static int take(int val, const char *value, int remote) {
    (void)remote;
    size_t used = strlen(got);
    snprintf(got + used, sizeof got - used, "%s%s%s%s", used ? " " : "", options[val].name,
             options[val].has_arg ? "=" : "", options[val].has_arg ? value : "");
    return 0;
}

static struct spank_option options[5] = {
    {"container-image", "IMAGE", "the image", 1, 0, take},
    {"container-mounts", "SRC:DST", "mounts", 1, 1, take},
    {"no-container-mount-home", NULL, "do not mount the home folder", 0, 2, take},
    {"no-container-remap-root", NULL, "do not become root inside", 0, 3, take},
    {"container-name", "NAME", "name of a container to keep", 1, 4, take},
};

int slurm_spank_init(struct spank_handle *spank, int count, char **words) {
    (void)count, (void)words;
    for (int i = 0; i < 5; i++)
        if (spank_option_register(spank, &options[i]))
            return -1;
    return 0;
}

int slurm_spank_task_init(struct spank_handle *spank, int count, char **words) {
    (void)count, (void)words;
    return got[0] ? spank_setenv(spank, "PYXIS_GOT", got, 1) : 0;
}
