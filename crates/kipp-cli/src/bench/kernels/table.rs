//! What `kipp bench kernels` measured, as a table and as JSON.

use anyhow::{Context, Result};
use kipp::artifact::Artifact;
use kipp::kv::KvScheme;
use kipp_kernels::{Activations, KernelClass};
use serde::Serialize;

use crate::bench::format;
use crate::bench::limits::Limits;
use crate::bench::statistics::{Summary, median};
use crate::bench::work::fastest_loop;

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
    /// The loop that products with these activations are made of, and its rate beside the case.
    peak_loop: String,
    peak_gop_s: f64,
    /// `gop_s` as a part of it.
    of_peak: f64,
    /// The bare read beside the case.
    read_gb_s: f64,
    /// `gb_s` as a part of it.
    of_read: f64,
    /// `gop_s` with the same weights in every call.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_gop_s: Option<f64>,
}

impl Measured {
    /// `work` is seconds, operations and bytes of one call.
    pub(super) fn new(
        (class, threads): (KernelClass, usize),
        name: String,
        activations: Activations,
        (time, operations, bytes): (Summary, f64, f64),
        limits: &Limits,
    ) -> Measured {
        let peak = fastest_loop(activations, limits);
        let seconds = time.median;
        let (gop_s, gb_s) = (operations / seconds / 1e9, bytes / seconds / 1e9);
        let peak_gop_s = peak.map_or(f64::NAN, |peak| peak.gop_s);
        Measured {
            class: class.name(),
            threads,
            name,
            micros: seconds * 1e6,
            mad_micros: time.mad * 1e6,
            gop_s,
            gb_s,
            peak_loop: peak.map_or_else(String::new, |peak| peak.name.clone()),
            peak_gop_s,
            of_peak: gop_s / peak_gop_s,
            read_gb_s: limits.read_gb_s,
            of_read: gb_s / limits.read_gb_s,
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
        let Measured { class, threads, name, micros, gop_s, of_peak, gb_s, of_read, .. } = self;
        format!(
            "{class} x {threads} {name}: {micros:.1} us, {gop_s:.1} GOP/s ({:.0} %), {gb_s:.1} GB/s ({:.0} %)",
            of_peak * 100.0,
            of_read * 100.0
        )
    }

    fn row(&self) -> [String; 11] {
        [
            self.name.clone(),
            self.class.to_owned(),
            self.threads.to_string(),
            format!("{:.1}", self.micros),
            format!("{:.1}", self.gb_s),
            format!("{:.1}", self.read_gb_s),
            format!("{:.0} %", self.of_read * 100.0),
            format!("{:.1}", self.gop_s),
            format!("{:.0} {}", self.peak_gop_s, self.peak_loop),
            format!("{:.0} %", self.of_peak * 100.0),
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
    format!("shapes of {id}, random weights, KV {}\n\n{}", kv.name(), format::markdown(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::limits::Peak;

    #[test]
    fn shares_are_of_the_limits_beside_the_case() {
        let peak = Peak { name: "u8_dot".to_owned(), one_thread_gop_s: 400.0, gop_s: 800.0 };
        let limits = Limits { read_one_thread_gb_s: 20.0, read_gb_s: 40.0, peaks: vec![peak] };
        let time = |seconds| Summary { median: seconds, mad: seconds / 100.0, min: seconds, max: seconds };
        let work = (time(1e-3), 4e8, 2e7);
        let measured =
            Measured::new((KernelClass::Scalar, 2), "q8_0 o M=8".to_owned(), Activations::S8, work, &limits);
        assert_eq!((measured.gop_s.round(), measured.gb_s.round()), (400.0, 20.0));
        assert!((measured.of_peak - 0.5).abs() < 1e-9 && (measured.of_read - 0.5).abs() < 1e-9);
        let reused = measured.reused(time(5e-4));
        assert_eq!(reused.reused_gop_s.map(f64::round), Some(800.0));
        assert!((dispersion(&[reused]).unwrap() - 0.01).abs() < 1e-9);
    }
}
