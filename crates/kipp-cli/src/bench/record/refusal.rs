//! Why a record would not count. Each reason is a lesson: a silent fallback, a dirty tree, a restless machine all leave
//! figures that look like any other.

use super::Record;

/// MAD of the figure divided by its probe, as a part of its median, above which runs say nothing.
const WIDE: f64 = 0.03;

/// Runs below which there is no deviation to speak of.
const LEAST_RUNS: usize = 3;

/// One reason.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nobody could build this program again.
    #[error("it was built outside a git repository")]
    OutsideGit,
    /// The same, with a repository.
    #[error("it was built from a tree with changes: {0}")]
    DirtyTree(String),
    /// Overflow checks, assertions, less optimization.
    #[error("it is no release build but {0}")]
    NotRelease(String),
    /// What was measured is not what would run.
    #[error("a fast kernel was not taken: {0}")]
    Demoted(String),
    /// A device that only imitates one.
    #[error("the backend {0} is no device")]
    SoftwareDevice(String),
    /// Clocks follow the battery.
    #[error("the machine runs on battery")]
    Battery,
    /// Clocks follow a profile.
    #[error("the machine saves power: {0}")]
    LowPower(String),
    /// A model that nobody else has.
    #[error("the model is {0}, not a registered checkpoint; --unregistered records it all the same")]
    Unregistered(String),
    /// A deviation of two runs is none; and the machine never stayed in one state.
    #[error("runs that count: {native}; needed: {wanted}")]
    FewRuns { native: usize, wanted: usize },
    /// The runs differ too much for their median to mean anything.
    #[error("the runs lie {:.1} % around their median after division by the probes, more than {:.0} %", .0 * 100.0, WIDE * 100.0)]
    Dispersion(f64),
    /// Its answers are not those of its class.
    #[error("the logits' fingerprint differs from the frozen one")]
    Fingerprint,
}

/// Every reason against a record, the measured ones only where something was measured.
pub(super) fn refusals(record: &Record, unregistered: bool) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let build = &record.build;
    if build.commit.is_empty() {
        refusals.push(Refusal::OutsideGit);
    } else if !build.changes.is_empty() {
        refusals.push(Refusal::DirtyTree(build.changes.clone()));
    }
    if build.profile != "release" || build.debug_assertions {
        let checks = if build.debug_assertions { " with debug assertions" } else { "" };
        refusals.push(Refusal::NotRelease(format!("{}{checks}", build.profile)));
    }
    if let Some(backend) = &record.backend {
        if !backend.demoted.is_empty() {
            refusals.push(Refusal::Demoted(backend.demoted.join("; ")));
        }
        if backend.name == "oracle" {
            refusals.push(Refusal::SoftwareDevice(backend.name.clone()));
        }
    }
    if record.machine.power.on_battery {
        refusals.push(Refusal::Battery);
    }
    if let Some(mode) = &record.machine.power.low_power {
        refusals.push(Refusal::LowPower(mode.clone()));
    }
    if record.model.registered != "registered" && !unregistered {
        refusals.push(Refusal::Unregistered(record.model.registered.clone()));
    }
    if let Some((native, wanted)) = record.runs.filter(|(native, wanted)| native < wanted.max(&LEAST_RUNS)) {
        refusals.push(Refusal::FewRuns { native, wanted: wanted.max(LEAST_RUNS) });
    }
    let wide = |dispersion: &f64| dispersion.is_nan() || *dispersion > WIDE;
    if let Some(dispersion) = record.dispersion.filter(wide) {
        refusals.push(Refusal::Dispersion(dispersion));
    }
    if record.fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.verdict == "differs") {
        refusals.push(Refusal::Fingerprint);
    }
    refusals
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{Build, Fingerprint, Machine, Model, Power, Record, SingleBackend};
    use super::*;

    fn good() -> Record {
        let backend = SingleBackend {
            name: "cpu".to_owned(),
            kernels: "avx512".to_owned(),
            activations: "q8_0:s8".to_owned(),
            threads: 2,
            demoted: Vec::new(),
            kv: "bf16".to_owned(),
            kv_blocks: 3,
            max_rows: 64,
        };
        Record {
            version: 1,
            what: "bench run",
            name: "tg64 x 8 @ d128".to_owned(),
            degraded: None,
            build: Build::clean_release(),
            model: Model::registered(),
            backend: Some(backend),
            machine: Machine::now().with_power(Power::default()),
            settings: Value::Null,
            protocol: Value::Null,
            results: Value::Null,
            runs: Some((5, 5)),
            dispersion: Some(0.01),
            fingerprint: None,
            command: Vec::new(),
            environment: Vec::new(),
            session: String::new(),
            time: String::new(),
        }
    }

    /// Why the record is refused once `change` was made to a good one.
    fn refused(change: impl FnOnce(&mut Record)) -> Vec<Refusal> {
        let mut record = good();
        change(&mut record);
        refusals(&record, false)
    }

    #[test]
    fn a_good_record_is_written() {
        assert_eq!(refused(|_| {}), []);
        assert_eq!(refused(|record| record.dispersion = Some(0.03)), []);
        assert_eq!(refused(|record| record.dispersion = None), []);
        let file = good().file_name();
        assert_eq!(file, "qwen3-0.6b-q8_0-tg64x8-d128-avx512-2t-kv-bf16-01234567.json");
    }

    #[test]
    fn a_dirty_tree_and_a_build_outside_git() {
        let dirty = refused(|record| record.build.changes = " M crates/kipp/src/lib.rs".to_owned());
        assert_eq!(dirty, [Refusal::DirtyTree(" M crates/kipp/src/lib.rs".to_owned())]);
        assert_eq!(refused(|record| record.build.commit.clear()), [Refusal::OutsideGit]);
    }

    #[test]
    fn what_is_no_release() {
        let debug = refused(|record| record.build.profile = "debug");
        assert_eq!(debug, [Refusal::NotRelease("debug".to_owned())]);
        let checked = refused(|record| record.build.debug_assertions = true);
        assert_eq!(checked, [Refusal::NotRelease("release with debug assertions".to_owned())]);
    }

    #[test]
    fn a_demoted_kernel_and_a_device_in_software() {
        let with =
            |change: fn(&mut SingleBackend)| refused(|record| record.backend.as_mut().map(change).unwrap());
        let demoted = with(|backend| backend.demoted = vec!["avx512: wrong answer".to_owned()]);
        assert_eq!(demoted, [Refusal::Demoted("avx512: wrong answer".to_owned())]);
        let oracle = with(|backend| backend.name = "oracle".to_owned());
        assert_eq!(oracle, [Refusal::SoftwareDevice("oracle".to_owned())]);
    }

    #[test]
    fn battery_and_low_power() {
        assert_eq!(refused(|record| record.machine.power.on_battery = true), [Refusal::Battery]);
        let slow = refused(|record| record.machine.power.low_power = Some("low-power".to_owned()));
        assert_eq!(slow, [Refusal::LowPower("low-power".to_owned())]);
    }

    #[test]
    fn an_unregistered_model_needs_the_flag() {
        let mut record = good();
        record.model.registered = "unregistered".to_owned();
        assert_eq!(refusals(&record, false), [Refusal::Unregistered("unregistered".to_owned())]);
        assert_eq!(refusals(&record, true), []);
    }

    #[test]
    fn a_wide_dispersion_and_one_that_is_no_number() {
        let wide = refused(|record| record.dispersion = Some(0.031));
        assert_eq!(wide, [Refusal::Dispersion(0.031)]);
        assert!(wide[0].to_string().contains("3.1 %"), "{}", wide[0]);
        assert_eq!(refused(|record| record.dispersion = Some(f64::NAN)).len(), 1);
    }

    #[test]
    fn fewer_runs_than_wanted_and_fewer_than_have_a_deviation() {
        let foreign = refused(|record| record.runs = Some((4, 5)));
        assert_eq!(foreign, [Refusal::FewRuns { native: 4, wanted: 5 }]);
        assert_eq!(refused(|record| record.runs = Some((1, 1))), [Refusal::FewRuns { native: 1, wanted: 3 }]);
        assert_eq!(refused(|record| record.runs = Some((6, 5))), []);
    }

    #[test]
    fn other_logits_than_the_frozen_ones() {
        let with = |verdict| refused(|record| record.fingerprint = Some(Fingerprint::with_verdict(verdict)));
        assert_eq!(with("differs"), [Refusal::Fingerprint]);
        assert_eq!((with("equal"), with("none frozen")), (vec![], vec![]));
    }
}
