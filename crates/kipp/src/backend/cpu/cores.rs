//! Which cores to compute on: the fast ones that share one memory, read from what Linux tells about them. Elsewhere only
//! the standard library's count is known.

use std::collections::{BTreeMap, BTreeSet};

/// The CPUs of one core on which the calling thread may run.
pub(super) type Core = BTreeSet<usize>;

/// The threads to compute with when nobody says: one for each physical core that has a CPU on which the calling thread
/// may run, performance cores only where there are two kinds, of one memory node only where there are several, and no
/// more than the control group's CPU time allows.
///
/// `available_parallelism` knows affinity and quotas but counts hyperthreads, which only take turns on the units that the
/// kernels keep full. An efficiency core would be waited for in every region, and weights in another node's memory are
/// read at half the speed.
pub fn default_threads() -> usize {
    let usable = usable_cores();
    fast_cores().map_or(usable, |cores| cores.len().min(usable)).max(1)
}

/// CPUs that the process may keep busy.
pub(super) fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores that [`default_threads`] counts, before the control group's limit; `None` where the system does not tell.
pub(super) fn fast_cores() -> Option<Vec<Core>> {
    let allowed = allowed_cpus(&std::fs::read_to_string("/proc/thread-self/status").ok()?)?;
    let told = |path: &str| {
        // AMD's compact cores have lower frequencies, but the units of the others: they are worth their thread.
        let frequency_of_x86 = cfg!(target_arch = "x86_64") && path.ends_with("/cpuinfo_max_freq");
        (!frequency_of_x86).then(|| std::fs::read_to_string(format!("/sys/devices/{path}")).ok())?
    };
    Some(choose(&allowed, told))
}

/// Cores to compute on among the `allowed` CPUs. `told` has the texts under `/sys/devices`; what it lacks is taken as
/// one kind of core, one node, one CPU a core.
fn choose(allowed: &BTreeSet<usize>, told: impl Fn(&str) -> Option<String>) -> Vec<Core> {
    let fast = fast_cpus(allowed, &told);
    let nodes = told("system/node/online").and_then(|list| cpu_list(&list)).unwrap_or_default();
    let of_node = |node: usize| {
        let cpus = cpu_list(&told(&format!("system/node/node{node}/cpulist"))?)?;
        Some(cores(&fast.intersection(&cpus).copied().collect(), &told))
    };
    // A node may have memory only, and a list may be absent: then all count.
    let largest =
        nodes.into_iter().filter_map(of_node).max_by_key(Vec::len).filter(|cores| !cores.is_empty());
    largest.unwrap_or_else(|| cores(&fast, &told))
}

/// The cores of `cpus`: CPUs that name the same siblings are one.
fn cores(cpus: &BTreeSet<usize>, told: &impl Fn(&str) -> Option<String>) -> Vec<Core> {
    let siblings = |cpu: usize| told(&format!("system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let core = |cpu: usize| siblings(cpu).and_then(|list| cpu_list(&list)?.first().copied()).unwrap_or(cpu);
    let mut cores: BTreeMap<usize, Core> = BTreeMap::new();
    for cpu in cpus {
        cores.entry(core(*cpu)).or_default().insert(*cpu);
    }
    cores.into_values().collect()
}

/// The performance cores' CPUs; all of them where there is one kind, or where only the other kind is allowed.
fn fast_cpus(allowed: &BTreeSet<usize>, told: &impl Fn(&str) -> Option<String>) -> BTreeSet<usize> {
    // Intel's hybrid processors have a list for each kind: `cpu_core` and `cpu_atom`.
    if let Some(performance) = told("cpu_core/cpus").and_then(|list| cpu_list(&list)) {
        let fast: BTreeSet<usize> = allowed.intersection(&performance).copied().collect();
        return if fast.is_empty() { allowed.clone() } else { fast };
    }
    // Arm tells the capacity of each CPU, the fastest one's being 1024, or at least its highest frequency.
    let capacities = numbers(allowed, |cpu| told(&format!("system/cpu/cpu{cpu}/cpu_capacity")));
    if let Some(capacities) = capacities {
        return at_least(&capacities, FAST_CAPACITY_PERCENT);
    }
    let frequencies = numbers(allowed, |cpu| told(&format!("system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq")));
    match frequencies {
        Some(frequencies) => at_least(&frequencies, FAST_FREQUENCY_PERCENT),
        None => allowed.clone(),
    }
}

/// A CPU with less of the largest capacity is an efficiency core: they have a fifth to two fifths, the middle kind of
/// three-kind processors has two thirds and more.
const FAST_CAPACITY_PERCENT: u64 = 50;

/// The same for the highest frequency, in which the kinds differ less: efficiency cores have up to two thirds, while
/// equal cores differ by some percent (the favoured ones of a desktop processor).
const FAST_FREQUENCY_PERCENT: u64 = 70;

/// A number for each of `cpus`, unless one has none.
fn numbers(cpus: &BTreeSet<usize>, text: impl Fn(usize) -> Option<String>) -> Option<BTreeMap<usize, u64>> {
    cpus.iter().map(|&cpu| Some((cpu, text(cpu)?.trim().parse().ok()?))).collect()
}

/// The CPUs with at least this share of the largest number.
fn at_least(numbers: &BTreeMap<usize, u64>, percent: u64) -> BTreeSet<usize> {
    let largest = numbers.values().copied().max().unwrap_or(0);
    let enough = |number: u64| number.saturating_mul(100) >= largest.saturating_mul(percent);
    numbers.iter().filter(|(_, number)| enough(**number)).map(|(cpu, _)| *cpu).collect()
}

/// The CPUs that a thread's `status` in `/proc` allows it; `None` where it does not say or names none.
fn allowed_cpus(status: &str) -> Option<BTreeSet<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    cpu_list(list).filter(|cpus| !cpus.is_empty())
}

/// More CPUs than Linux can be built for, so that a range allocates no more.
const MAX_CPUS: usize = 1 << 16;

/// Linux' list of CPUs: numbers and ranges with both ends, `0-3,8`. `None` for what is no such list.
fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> BTreeSet<usize> {
        cpu_list(text).unwrap()
    }

    fn count(allowed: &BTreeSet<usize>, told: impl Fn(&str) -> Option<String>) -> usize {
        choose(allowed, told).len()
    }

    #[test]
    fn cpu_lists_are_read_whole_or_not_at_all() {
        let read = |text: &str| cpu_list(text).map(|cpus| cpus.into_iter().collect::<Vec<usize>>());
        assert_eq!(read("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(read("\t5\n"), Some(vec![5]));
        assert_eq!(read("\n"), Some(vec![]));
        for bad in ["3-1", "x", "1-", "-1", "0-4294967295", "1 2"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let status = "Name:\tkipp\nCpus_allowed:\tc\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_cpus(status), Some(BTreeSet::from([2, 3])));
        assert_eq!(allowed_cpus("Name:\tkipp\n"), None);
        assert_eq!(allowed_cpus("Cpus_allowed_list:\t\n"), None);
    }

    #[test]
    fn cores_are_counted_among_the_allowed_cpus_only() {
        // Eight CPUs, `n` and `n + 4` on one core.
        let far = |path: &str| {
            let cpu: usize = path.strip_prefix("system/cpu/cpu")?.split('/').next()?.parse().ok()?;
            path.ends_with("thread_siblings_list").then(|| format!("{},{}\n", cpu % 4, cpu % 4 + 4))
        };
        assert_eq!(count(&list("0-7"), far), 4);
        assert_eq!(count(&list("0-1"), far), 2);
        assert_eq!(count(&list("1,5"), far), 1);
        assert_eq!(count(&list("4-6"), far), 3);
        assert_eq!(choose(&list("0-1,5"), far), [list("0"), list("1,5")]);
        // A system that does not tell.
        assert_eq!(count(&list("0-3"), |_| None), 4);
        assert!((1..=usable_cores()).contains(&default_threads()));
    }

    /// Texts of a desktop processor with 8 performance cores (two CPUs each) and 8 efficiency cores.
    fn intel_hybrid(path: &str) -> Option<String> {
        let text = match path {
            "cpu_core/cpus" => "0-15\n",
            "cpu_atom/cpus" => "16-23\n",
            "system/node/online" => "0\n",
            "system/node/node0/cpulist" => "0-23\n",
            _ => {
                let cpu =
                    path.strip_prefix("system/cpu/cpu")?.strip_suffix("/topology/thread_siblings_list")?;
                let cpu: usize = cpu.parse().ok()?;
                let first = cpu & !1;
                return Some(if cpu < 16 { format!("{first}-{}\n", first + 1) } else { format!("{cpu}\n") });
            }
        };
        Some(text.to_owned())
    }

    #[test]
    fn efficiency_cores_do_not_count_unless_nothing_else_is_allowed() {
        assert_eq!(count(&list("0-23"), intel_hybrid), 8);
        assert_eq!(count(&list("14-17"), intel_hybrid), 1);
        assert_eq!(count(&list("16-23"), intel_hybrid), 8);
    }

    #[test]
    fn arm_kinds_are_told_apart_by_capacity_else_by_frequency() {
        let of_cpu = |path: &str, file: &str, values: [u64; 8]| {
            let cpu = path.strip_prefix("system/cpu/cpu")?.strip_suffix(file)?;
            Some(format!("{}\n", values[cpu.parse::<usize>().ok()?]))
        };
        // Four small cores, three of the middle kind, a large one.
        let capacity = |path: &str| of_cpu(path, "/cpu_capacity", [325, 325, 325, 325, 828, 828, 828, 1024]);
        assert_eq!(count(&list("0-7"), capacity), 4);
        assert_eq!(count(&list("0-3"), capacity), 4);
        let khz = [2_016_000, 2_016_000, 2_016_000, 2_016_000, 2_803_200, 2_803_200, 2_803_200, 3_187_200];
        let frequency = |path: &str| of_cpu(path, "/cpufreq/cpuinfo_max_freq", khz);
        assert_eq!(count(&list("0-7"), frequency), 4);
        // Equal cores of which two are favoured.
        let khz = [5_700_000, 5_700_000, 5_500_000, 5_500_000, 5_500_000, 5_500_000, 5_500_000, 5_500_000];
        let favoured = |path: &str| of_cpu(path, "/cpufreq/cpuinfo_max_freq", khz);
        assert_eq!(count(&list("0-7"), favoured), 8);
    }

    #[test]
    fn one_memory_node_counts_the_one_with_most_allowed_cores() {
        // Two sockets of 4 cores, two CPUs a core, and a node that is memory only.
        let told = |path: &str| match path {
            "system/node/online" => Some("0-2\n".to_owned()),
            "system/node/node0/cpulist" => Some("0-3,8-11\n".to_owned()),
            "system/node/node1/cpulist" => Some("4-7,12-15\n".to_owned()),
            "system/node/node2/cpulist" => Some("\n".to_owned()),
            _ => {
                let cpu =
                    path.strip_prefix("system/cpu/cpu")?.strip_suffix("/topology/thread_siblings_list")?;
                let cpu = cpu.parse::<usize>().ok()? % 8;
                Some(format!("{cpu},{}\n", cpu + 8))
            }
        };
        assert_eq!(count(&list("0-15"), told), 4);
        assert_eq!(count(&list("0-4,8-12"), told), 4);
        assert_eq!(count(&list("3-7"), told), 4);
        assert_eq!(count(&list("3,4"), told), 1);
    }
}
