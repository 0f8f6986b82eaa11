//! How much memory is free, the limits of control groups included (a container's limit is its machine). Only Linux
//! tells; elsewhere nobody knows.

use std::fs;
use std::path::Path;

/// Bytes that can be had without pushing anything out, if the system tells.
pub(crate) fn free_bytes() -> Option<u64> {
    let available = mem_available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = control_group_free(&groups, Path::new("/sys/fs/cgroup"));
    Some(group.map_or(available, |group| group.min(available)))
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest room that the process' control group and those around it leave, version 2 or 1.
fn control_group_free(groups: &str, root: &Path) -> Option<u64> {
    let path_of = |line: &str, controllers: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let named = parts.next()?.split(',').any(|name| name == controllers);
        named.then(|| parts.next().unwrap_or("/").trim_start_matches('/').to_owned())
    };
    let v2 = groups.lines().find_map(|line| path_of(line, ""));
    let v1 = groups.lines().find_map(|line| path_of(line, "memory"));
    let v2 = v2.and_then(|path| tightest(root, &path, &V2));
    let v1 = v1.and_then(|path| tightest(&root.join("memory"), &path, &V1));
    v1.into_iter().chain(v2).min()
}

/// The file names of one version of control groups.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// The file cache that the kernel would drop first; it counts as used but is free.
    reclaimable: &'static str,
}

const V2: Names = Names { limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file " };
const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};

/// A container often sees its own group as the root, so every folder up to the root is looked at and absent ones skipped.
fn tightest(root: &Path, path: &str, names: &Names) -> Option<u64> {
    let group = root.join(path);
    group
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .filter_map(|folder| free(folder, names))
        .min()
}

fn free(folder: &Path, names: &Names) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // "max" is no number: no limit here.
    let limit = number(names.limit)?;
    let usage = number(names.usage)?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let reclaimable =
        stat.lines().find_map(|line| line.strip_prefix(names.reclaimable)?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kib() {
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:     2048 kB\n"), Some(2 << 20));
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts_and_its_file_cache_does_not() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(inner.join("memory.current"), "100\n").unwrap();
        let outer = root.path().join("outer");
        fs::write(outer.join("memory.max"), "1000\n").unwrap();
        fs::write(outer.join("memory.current"), "600\n").unwrap();
        fs::write(outer.join("memory.stat"), "anon 1\ninactive_file 50\n").unwrap();
        assert_eq!(control_group_free("0::/outer/inner\n", root.path()), Some(450));
        assert_eq!(control_group_free("0::/elsewhere\n", root.path()), None);

        let v1 = root.path().join("memory/jobs");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("memory.limit_in_bytes"), "300\n").unwrap();
        fs::write(v1.join("memory.usage_in_bytes"), "100\n").unwrap();
        assert_eq!(control_group_free("4:cpu,memory:/jobs\n0::/\n", root.path()), Some(200));
    }
}
