//! The memory that the control groups of this process leave it, on Linux: in a container, or under a service manager's
//! limit, the machine has more than the process may take.
//!
//! Both versions of the kernel's interface (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`). What a group
//! uses counts file pages that nobody has looked at for a while; those go when memory is wanted, and are not counted here.

use std::path::{Path, PathBuf};

/// Where systems mount the groups.
const MOUNT: &str = "/sys/fs/cgroup";

/// What the files of one version are called.
struct Version {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    inactive_file: &'static str,
}

const V2: Version = Version {
    mount: "",
    limit: "memory.max",
    usage: "memory.current",
    inactive_file: "inactive_file ",
};
const V1: Version = Version {
    mount: "memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive_file: "total_inactive_file ",
};

/// `total` and `available` bytes of the machine, less where a group of the process, or one above it, allows less. `groups` is
/// the text of `/proc/self/cgroup`; `read` gives the text of a file.
pub(crate) fn within(
    (mut total, mut available): (u64, u64),
    groups: &str,
    read: &dyn Fn(&Path) -> Option<String>,
) -> (u64, u64) {
    for line in groups.lines() {
        // hierarchy:controllers:path; version 2 names no controllers.
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next(), fields.next());
        let (version, path) = match (controllers, path) {
            (Some(""), Some(path)) => (&V2, path),
            (Some(names), Some(path)) if names.split(',').any(|name| name == "memory") => {
                (&V1, path)
            }
            _ => continue,
        };
        let mount = Path::new(MOUNT).join(version.mount);
        for folder in folders(&mount, path) {
            let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
            // Without a limit there is no number.
            let Some(limit) = number(version.limit) else {
                continue;
            };
            let inactive = read(&folder.join("memory.stat"))
                .and_then(|text| {
                    let line = text.lines();
                    line.filter_map(|line| line.strip_prefix(version.inactive_file))
                        .find_map(|number| number.trim().parse::<u64>().ok())
                })
                .unwrap_or(0);
            let used = number(version.usage).unwrap_or(0).saturating_sub(inactive);
            total = total.min(limit);
            available = available.min(limit.saturating_sub(used));
        }
    }
    (total, available)
}

/// The folder of a group and of those above it, up to the mount. Inside a container the path may be that of the host, of
/// which only the mount is seen.
fn folders(mount: &Path, path: &str) -> Vec<PathBuf> {
    let names: Vec<&str> = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != "..")
        .collect();
    (0..=names.len())
        .rev()
        .map(|depth| mount.join(names[..depth].join("/")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::within;

    const MACHINE: (u64, u64) = (16_000, 9_000);

    fn read_from<'a>(files: &'a [(&str, &str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn a_group_of_version_2_leaves_its_limit_less_what_it_uses_and_cannot_drop() {
        let files = [
            ("/sys/fs/cgroup/app.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/app.slice/a.service/memory.max", "4000\n"),
            (
                "/sys/fs/cgroup/app.slice/a.service/memory.current",
                "3000\n",
            ),
            (
                "/sys/fs/cgroup/app.slice/a.service/memory.stat",
                "anon 900\nfile 1900\ninactive_file 1500\nactive_file 400\n",
            ),
        ];
        let left = within(MACHINE, "0::/app.slice/a.service\n", &read_from(&files));
        assert_eq!(left, (4_000, 2_500));
    }

    #[test]
    fn the_tightest_of_the_groups_above_holds() {
        let files = [
            ("/sys/fs/cgroup/a/memory.max", "5000"),
            ("/sys/fs/cgroup/a/memory.current", "4900"),
            ("/sys/fs/cgroup/a/b/memory.max", "3000"),
            ("/sys/fs/cgroup/a/b/memory.current", "100"),
        ];
        assert_eq!(within(MACHINE, "0::/a/b", &read_from(&files)), (3_000, 100));
    }

    #[test]
    fn a_container_of_version_1_is_found_at_the_mount() {
        let groups = "12:cpu,cpuacct:/docker/f00\n4:memory:/docker/f00\n0::/\n";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 500\n",
            ),
        ];
        assert_eq!(within(MACHINE, groups, &read_from(&files)), (8_000, 1_500));
    }

    #[test]
    fn without_a_limit_the_machine_is_what_there_is() {
        let none = [
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "7000"),
            ("/sys/fs/cgroup/memory.max", "max"),
        ];
        let read = read_from(&none);
        for groups in ["", "0::/", "4:memory:/\n", "nonsense", "4:memory\n::"] {
            assert_eq!(within(MACHINE, groups, &read), MACHINE, "{groups:?}");
        }
    }
}
