//! What `kipp bench kernels` measured, as a table and as JSON.

use anyhow::{Context, Result};
use kipp::artifact::Artifact;
use kipp::kv::KvScheme;
use kipp_kernels::KernelClass;
use kipp_kernels::probe::PeakLoop;
use serde::Serialize;

use crate::bench::format;
use crate::bench::limits::{Limits, SAME_STATE};
use crate::bench::statistics::{Summary, median};

/// The part of a loop's rate above which a case cannot be: the clock rises and falls by a few percent between both.
const ABOVE: f64 = 1.05;

/// One case beside the limits of its class.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    class: &'static str,
    threads: usize,
    name: String,
    /// Of one call, weights taking turns: median of several passes.
    micros: f64,
    mad_micros: f64,
    gop_s: f64,
    /// Weights as a file has them, or keys and values.
    gb_s: f64,
    /// The loop that the case is made of, and its rate beside the case; equal parts of two, joined by a plus.
    peak_loop: String,
    peak_gop_s: f64,
    /// `gop_s` as a part of it.
    of_peak: f64,
    /// The bare read beside the case.
    read_gb_s: f64,
    /// `gb_s` as a part of it; above 1 where caches held what was read.
    of_read: f64,
    /// The limits before and after the case differ, or the case exceeds its loop: the machine was busy with something
    /// else, and the shares say nothing.
    disturbed: bool,
    /// `gop_s` with the same weights in every call.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_gop_s: Option<f64>,
}

/// One call.
pub(super) struct Work {
    /// Seconds.
    pub(super) time: Summary,
    /// Multiplications and additions.
    pub(super) operations: f64,
    /// What is read.
    pub(super) bytes: f64,
}

/// The limits around a case.
#[derive(Clone, Copy)]
pub(super) struct Probed<'a> {
    pub(super) before: &'a Limits,
    pub(super) after: &'a Limits,
}

impl Probed<'_> {
    /// The mean of both, and whether they are so far apart that they were probed in two states of the machine.
    fn limit(self, of: impl Fn(&Limits) -> f64) -> (f64, bool) {
        let (before, after) = (of(self.before), of(self.after));
        let mean = (before + after) / 2.0;
        (mean, (before - after).abs() > SAME_STATE * mean)
    }
}

/// The rate of operations that are done in equal parts by these loops.
fn rate(loops: &[PeakLoop], limits: &Limits) -> f64 {
    let times = loops.iter().map(|which| limits.peak(*which).map_or(f64::NAN, |peak| 1.0 / peak.gop_s));
    loops.len() as f64 / times.sum::<f64>()
}

impl Measured {
    pub(super) fn new(
        (class, threads): (KernelClass, usize),
        name: String,
        loops: &[PeakLoop],
        work: Work,
        probed: Probed<'_>,
    ) -> Measured {
        let Work { time, operations, bytes } = work;
        let seconds = time.median;
        let (gop_s, gb_s) = (operations / seconds / 1e9, bytes / seconds / 1e9);
        let (peak_gop_s, loop_moved) = probed.limit(|limits| rate(loops, limits));
        let (read_gb_s, read_moved) = probed.limit(|limits| limits.read_gb_s);
        Measured {
            class: class.name(),
            threads,
            name,
            micros: seconds * 1e6,
            mad_micros: time.mad * 1e6,
            gop_s,
            gb_s,
            peak_loop: loops.iter().map(|which| which.name()).collect::<Vec<_>>().join("+"),
            peak_gop_s,
            of_peak: gop_s / peak_gop_s,
            read_gb_s,
            of_read: gb_s / read_gb_s,
            disturbed: loop_moved || read_moved || gop_s > peak_gop_s * ABOVE,
            reused_gop_s: None,
        }
    }

    /// With the seconds of a call that uses the same weights as the one before.
    pub(super) fn reused(self, time: Summary) -> Measured {
        let operations = self.gop_s * self.micros;
        Measured { reused_gop_s: Some(operations / (time.median * 1e6)), ..self }
    }

    /// One line of progress.
    pub(super) fn line(&self) -> String {
        let Measured { class, threads, name, micros, gop_s, gb_s, .. } = self;
        format!(
            "{class} x {threads} {name}: {micros:.1} us, {gop_s:.1} GOP/s ({}), {gb_s:.1} GB/s ({})",
            self.share(self.of_peak),
            self.share(self.of_read)
        )
    }

    /// A share with its mark.
    fn share(&self, share: f64) -> String {
        let mark = match (self.disturbed, share > 1.0) {
            (true, _) => " !",
            (false, true) => " *",
            (false, false) => "",
        };
        format!("{:.0} %{mark}", share * 100.0)
    }

    fn row(&self) -> [String; 11] {
        [
            self.name.clone(),
            self.class.to_owned(),
            self.threads.to_string(),
            format!("{:.1}", self.micros),
            format!("{:.1}", self.gb_s),
            format!("{:.1}", self.read_gb_s),
            self.share(self.of_read),
            format!("{:.1}", self.gop_s),
            format!("{:.0} {}", self.peak_gop_s, self.peak_loop),
            self.share(self.of_peak),
            self.reused_gop_s.map_or_else(String::new, |rate| format!("{rate:.1}")),
        ]
    }
}

/// The median over all cases of their deviation as a part of the time: a few cases that a neighbour disturbed do not
/// spoil hundreds of others.
pub(super) fn dispersion(measured: &[Measured]) -> Option<f64> {
    median(&measured.iter().map(|it| it.mad_micros / it.micros).collect::<Vec<f64>>())
}

/// One JSON document.
pub(super) fn json(measured: &[Measured]) -> Result<String> {
    Ok(serde_json::to_string(measured).context("the result as JSON")? + "\n")
}

/// A table for people.
pub(super) fn markdown(artifact: &Artifact, kv: KvScheme, measured: &[Measured]) -> String {
    let header = [
        "case",
        "class",
        "threads",
        "us",
        "GB/s",
        "bare read",
        "share",
        "GOP/s",
        "peak loop",
        "share",
        "GOP/s, weights reused",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(measured.iter().map(Measured::row));
    let id = artifact.id();
    let table = format::markdown(&rows);
    let mut text = format!("shapes of {id}, random weights, KV {}\n\n{table}", kv.name());
    if measured.iter().any(|it| it.disturbed) {
        text +=
            "\n!  the machine was busy with something else: its limits moved, or the case exceeds its loop\n";
    }
    if measured.iter().any(|it| !it.disturbed && (it.of_read > 1.0 || it.of_peak > 1.0)) {
        text += "\n*  above the limit: caches held what was read, or the clock rose\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::limits::Peak;

    #[test]
    fn shares_are_of_the_limits_beside_the_case() {
        let peak = |name: &str, gop_s| Peak { name: name.to_owned(), one_thread_gop_s: gop_s / 2.0, gop_s };
        let peaks = vec![peak("u8_dot", 800.0), peak("f32_fma", 200.0)];
        let limits = Limits { read_one_thread_gb_s: 20.0, read_gb_s: 40.0, peaks };
        let same = Probed { before: &limits, after: &limits };
        let time = |seconds| Summary { median: seconds, mad: seconds / 100.0, min: seconds, max: seconds };
        let of = |loops: &[PeakLoop], operations: f64, probed| {
            let work = Work { time: time(1e-3), operations, bytes: 2e7 };
            Measured::new((KernelClass::Scalar, 2), "q8_0 o M=8".to_owned(), loops, work, probed)
        };
        let measured = of(&[PeakLoop::U8Dot], 4e8, same);
        assert_eq!((measured.gop_s.round(), measured.gb_s.round()), (400.0, 20.0));
        assert!((measured.of_peak - 0.5).abs() < 1e-9 && (measured.of_read - 0.5).abs() < 1e-9);
        assert_eq!((measured.disturbed, measured.share(0.5)), (false, "50 %".to_owned()));
        let reused = measured.reused(time(5e-4));
        assert_eq!(reused.reused_gop_s.map(f64::round), Some(800.0));
        assert!((dispersion(&[reused]).unwrap() - 0.01).abs() < 1e-9);

        // Half of the operations four times as fast as the others.
        let both = of(&[PeakLoop::U8Dot, PeakLoop::F32Fma], 1.6e8, same);
        assert_eq!((both.peak_loop.as_str(), both.peak_gop_s), ("u8_dot+f32_fma", 320.0));
        assert!((both.of_peak - 0.5).abs() < 1e-9);

        let above = of(&[PeakLoop::F32Fma], 4e8, same);
        assert!(above.disturbed && above.line().contains("(200 % !)"), "{}", above.line());
        let slower = Limits { read_gb_s: 30.0, ..limits.clone() };
        let moved = of(&[PeakLoop::U8Dot], 4e8, Probed { before: &limits, after: &slower });
        assert!(moved.disturbed && moved.read_gb_s == 35.0);
    }
}
