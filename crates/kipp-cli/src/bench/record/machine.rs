//! The machine as Linux describes it in /proc and /sys; other systems tell little. Only files are read: no program is
//! started and nothing is guessed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The hardware, the system, and what else went on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    /// Vendor, model name, family, model and stepping, as /proc/cpuinfo has them.
    cpu: BTreeMap<&'static str, String>,
    logical_cpus: usize,
    physical_cores: Option<usize>,
    /// CPUs that this process may run on.
    affinity: Option<String>,
    /// Level and kind to bytes, of the first CPU.
    caches: BTreeMap<String, String>,
    memory_bytes: Option<u64>,
    huge_pages: Option<String>,
    os: String,
    kernel: Option<String>,
    /// The processor says that it is a virtual one.
    virtual_machine: bool,
    pub(super) power: Power,
    /// Averages over 1, 5 and 15 minutes, before the first run.
    load_average: Option<String>,
}

/// Whether the machine may run as fast as it can.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Power {
    pub(super) on_battery: bool,
    /// The profile or governor that keeps it slow, if one does.
    pub(super) low_power: Option<String>,
    governor: Option<String>,
    profile: Option<String>,
}

impl Machine {
    /// What the system tells now.
    pub(super) fn now() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            cpu: cpu(&cpuinfo),
            logical_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            physical_cores: physical_cores(&cpuinfo),
            affinity: field(&status, "Cpus_allowed_list").map(str::to_owned),
            caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            memory_bytes: field(&meminfo, "MemTotal").and_then(kib),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
            os: os(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
            kernel: line("/proc/sys/kernel/osrelease"),
            virtual_machine: field(&cpuinfo, "flags").is_some_and(|flags| has_word(flags, "hypervisor")),
            power: Power::now(),
            load_average: line("/proc/loadavg"),
        }
    }
}

impl Machine {
    /// The same machine at another moment.
    pub(super) fn with_power(self, power: Power) -> Machine {
        Machine { power, ..self }
    }
}

impl Power {
    /// What the system tells now.
    pub(super) fn now() -> Power {
        let governor = line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let profile = line("/sys/firmware/acpi/platform_profile");
        Power {
            on_battery: on_battery(Path::new("/sys/class/power_supply")),
            low_power: low_power(governor.as_deref(), profile.as_deref()),
            governor,
            profile,
        }
    }
}

/// `powersave` is what some drivers call their ordinary governor; what the platform itself calls low power is not.
fn low_power(governor: Option<&str>, profile: Option<&str>) -> Option<String> {
    let profile = profile.filter(|profile| matches!(*profile, "low-power" | "quiet" | "cool"));
    let governor = governor.filter(|governor| *governor == "conservative");
    profile.or(governor).map(str::to_owned)
}

/// A battery that gives power, and no mains.
fn on_battery(supplies: &Path) -> bool {
    let read = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    folders(supplies).iter().any(|it| read(it, "type") == "Battery" && read(it, "status") == "Discharging")
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// The value of the first line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|found| found == word)
}

fn kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn cpu(cpuinfo: &str) -> BTreeMap<&'static str, String> {
    let names =
        ["vendor_id", "model name", "cpu family", "model", "stepping", "microcode", "cpu MHz", "flags"];
    names.into_iter().filter_map(|name| Some((name, field(cpuinfo, name)?.to_owned()))).collect()
}

/// Distinct pairs of package and core.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let cores: std::collections::BTreeSet<(&str, &str)> = cpuinfo
        .split("\n\n")
        .filter_map(|cpu| Some((field(cpu, "physical id")?, field(cpu, "core id")?)))
        .collect();
    (!cores.is_empty()).then_some(cores.len())
}

fn caches(folder: &Path) -> BTreeMap<String, String> {
    let cache = |index: &PathBuf| {
        let read = |name: &str| fs::read_to_string(index.join(name)).ok().map(|text| text.trim().to_owned());
        Some((format!("L{} {}", read("level")?, read("type")?), read("size")?))
    };
    folders(folder).iter().filter_map(cache).collect()
}

fn os(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| std::env::consts::OS.to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Milliseconds that a hypervisor gave this machine's CPUs to others, since it started.
pub(crate) fn stolen_ms() -> Option<u64> {
    stolen(&fs::read_to_string("/proc/stat").ok()?)
}

/// The eighth number of the first line, in hundredths of a second.
fn stolen(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    line.split_whitespace().nth(7)?.parse::<u64>().ok()?.checked_mul(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_is_read_by_name() {
        let info = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nphysical id\t: 0\ncore id\t: 0\n\
                    flags\t: fpu hypervisor\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t: 0\n\n\
                    processor\t: 2\nphysical id\t: 0\ncore id\t: 1\n";
        assert_eq!(cpu(info)["cpu family"], "25");
        assert_eq!(physical_cores(info), Some(2));
        assert!(has_word(field(info, "flags").unwrap(), "hypervisor"));
        assert_eq!((physical_cores(""), kib("2048 kB")), (None, Some(2 << 20)));
        assert_eq!(stolen("cpu  1 2 3 4 5 6 7 8 9 0\ncpu0 1\n"), Some(80));
        assert_eq!(os("NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n"), "Some Linux 1");
    }

    #[test]
    fn a_discharging_battery_and_a_slow_profile_are_seen() {
        let root = tempfile::tempdir().unwrap();
        let supply = |name: &str, kind: &str, status: &str| {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("type"), kind).unwrap();
            fs::write(folder.join("status"), status).unwrap();
        };
        assert!(!on_battery(root.path()) && !on_battery(Path::new("/nowhere")));
        supply("AC", "Mains\n", "\n");
        supply("BAT0", "Battery\n", "Charging\n");
        assert!(!on_battery(root.path()));
        supply("BAT0", "Battery\n", "Discharging\n");
        assert!(on_battery(root.path()));
        assert_eq!(low_power(Some("powersave"), Some("balanced")), None);
        assert_eq!(low_power(Some("powersave"), Some("low-power")).as_deref(), Some("low-power"));
        assert_eq!(low_power(Some("conservative"), None).as_deref(), Some("conservative"));
    }
}
