//! Results as text: a table with shares of the machine's limits, JSON, or the columns of `llama-bench`.

use anyhow::Context;
use kipp::artifact::Artifact;

use super::schedule::CaseResult;
use super::single::SingleBackend;
use super::work::{Bound, Work, bound};

/// One JSON document.
pub(crate) fn json(results: &[CaseResult]) -> anyhow::Result<String> {
    Ok(serde_json::to_string(results).context("the result as JSON")? + "\n")
}

/// A table for people, as Markdown.
pub(crate) fn table(artifact: &Artifact, results: &[CaseResult], work: &Work) -> String {
    let mut rows =
        vec![["case", "tok/s", "MAD", "min", "max", "runs", "limit beside it", "share"].map(str::to_owned)];
    for result in results {
        let limit = match bound(result.case) {
            Bound::Memory => format!("{:.1} GB/s read", result.limit),
            Bound::Compute => format!("{:.0} GOP/s {}", result.limit, loop_name(result, work)),
        };
        rows.push([
            result.name.clone(),
            format!("{:.2}", result.tok_s),
            format!("{:.2}", result.mad),
            format!("{:.2}", result.min),
            format!("{:.2}", result.max),
            match result.foreign_runs {
                0 => result.runs.len().to_string(),
                foreign => format!("{} ({foreign} foreign)", result.runs.len()),
            },
            limit,
            format!("{:.0} %", result.share * 100.0),
        ]);
    }
    let backend = results.first().and_then(|result| result.runs.first()).map(|run| &run.run.backend);
    format!("{}\n\n{}", title(artifact, backend), markdown(&rows))
}

/// The model and what evaluated it, as a line.
pub(crate) fn title(artifact: &Artifact, backend: Option<&SingleBackend>) -> String {
    let on = backend.map_or_else(String::new, |backend| {
        let threads = if backend.threads == 1 { "thread" } else { "threads" };
        format!(
            ", {} {} ({}), KV {}, {} {threads}",
            backend.name, backend.kernels, backend.activations, backend.kv, backend.threads
        )
    });
    format!("{}{on}", model_line(artifact))
}

fn loop_name<'a>(result: &'a CaseResult, work: &Work) -> &'a str {
    let limits = result.runs.first().map(|run| &run.before);
    limits.and_then(|limits| work.peak(limits)).map_or("", |peak| &peak.name)
}

fn model_line(artifact: &Artifact) -> String {
    let registered = artifact.quick_registration().as_str();
    format!("{} ({registered}, {})", artifact.id(), artifact.scheme().name())
}

/// The table that `llama-bench` prints, with the median and its deviation where that has mean and standard deviation.
pub(crate) fn llama_bench(artifact: &Artifact, results: &[CaseResult]) -> String {
    let header = ["model", "size", "params", "backend", "threads", "test", "t/s"];
    let mut rows = vec![header.map(str::to_owned)];
    for result in results {
        let backend = result.runs.first().map(|run| &run.run.backend);
        rows.push([
            format!("{} {}", artifact.id(), artifact.scheme().name()),
            format!("{:.2} MiB", artifact.file().bytes as f64 / f64::from(1 << 20)),
            format!("{:.2} M", artifact.parameters() as f64 / 1e6),
            backend.map_or_else(String::new, |backend| format!("Kipp {}", backend.name)),
            backend.map_or_else(String::new, |backend| backend.threads.to_string()),
            result.name.clone(),
            format!("{:.2} ± {:.2}", result.tok_s, result.mad),
        ]);
    }
    markdown(&rows)
}

/// The first row is the header; the first column is text, the others numbers.
pub(crate) fn markdown<R: AsRef<[String]>>(rows: &[R]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let mut out = String::new();
    for (index, row) in rows.iter().map(AsRef::as_ref).enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            // A bar from a file name must not begin a column.
            let cell = cell.replace('|', "/");
            out += &if column == 0 { format!("| {cell:<width$} ") } else { format!("| {cell:>width$} ") };
        }
        out += "|\n";
        if index == 0 {
            for column in 0..row.len() {
                let dashes = "-".repeat(width(column));
                out += &if column == 0 { format!("| {dashes} ") } else { format!("| {dashes}:") };
            }
            out += "|\n";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let rows = [["case", "tok/s"], ["pp512", "1.5"], ["a|b", "10.25"]].map(|row| row.map(str::to_owned));
        let expected = "| case  | tok/s |\n| ----- | -----:|\n| pp512 |   1.5 |\n| a/b   | 10.25 |\n";
        assert_eq!(markdown(&rows), expected);
    }
}
