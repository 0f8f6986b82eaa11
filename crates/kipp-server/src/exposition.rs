//! Prometheus' text format: how counts, gauges and histograms are written. Which there are, `metrics` and `vllm_metrics`
//! say.

use std::fmt::{Display, Write as _};

/// A page of metrics as it grows.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    /// Labels of every line, as they stand between the braces.
    labels: String,
}

/// A histogram's observations.
pub(crate) struct Buckets<'a> {
    /// Upper bounds.
    pub(crate) bounds: &'a [f64],
    /// Observations above the bound before and up to each bound.
    pub(crate) counts: &'a [u64],
    /// All of them, those above the last bound too.
    pub(crate) total: u64,
    pub(crate) sum: f64,
}

impl Exposition {
    /// From here on every line has these labels.
    pub(crate) fn label(&mut self, labels: &[(&str, &str)]) {
        self.labels = labels.iter().fold(String::new(), |all, (name, value)| join(&all, &label(name, value)));
    }

    /// What a metric is; its lines follow.
    pub(crate) fn head(&mut self, kind: &str, name: &str, help: &str) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A line of the metric.
    pub(crate) fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let own = labels.iter().fold(String::new(), |all, (name, value)| join(&all, &label(name, value)));
        let labels = join(&self.labels, &own);
        let _ = match labels.is_empty() {
            true => writeln!(self.text, "{name} {value}"),
            false => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    /// A metric of one line.
    pub(crate) fn one(&mut self, kind: &str, name: &str, help: &str, value: impl Display) {
        self.head(kind, name, help);
        self.line(name, &[], value);
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, buckets: &Buckets<'_>) {
        self.head("histogram", name, help);
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in buckets.bounds.iter().zip(buckets.counts) {
            below += count;
            self.line(&bucket, &[("le", &bound.to_string())], below);
        }
        self.line(&bucket, &[("le", "+Inf")], buckets.total);
        self.line(&format!("{name}_sum"), &[], buckets.sum);
        self.line(&format!("{name}_count"), &[], buckets.total);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn join(one: &str, other: &str) -> String {
    let comma = if one.is_empty() || other.is_empty() { "" } else { "," };
    format!("{one}{comma}{other}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_joined() {
        let mut page = Exposition::default();
        page.line("a", &[], 1);
        page.label(&[("model_name", "x\"\\\ny"), ("engine", "0")]);
        page.line("b", &[("le", "0.5")], 2);
        assert_eq!(page.finish(), "a 1\nb{model_name=\"x\\\"\\\\\\ny\",engine=\"0\",le=\"0.5\"} 2\n");
    }
}
