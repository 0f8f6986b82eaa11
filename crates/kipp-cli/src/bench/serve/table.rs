//! Results for people: a table, lines of progress, and how servers compare run by run.

use std::collections::BTreeMap;

use super::super::engine::{CaseRun, Column};
use super::super::format::markdown;
use super::super::statistics::Summary;
use super::frame::{Side, SideResult};

const COLUMNS: [Column; 10] = [
    Column { figure: "tok_s", header: "tok/s", decimals: 1 },
    Column { figure: "net_tok_s", header: "less client", decimals: 1 },
    Column { figure: "ttft_p50_ms", header: "TTFT p50 ms", decimals: 1 },
    Column { figure: "ttft_p99_ms", header: "p99", decimals: 1 },
    Column { figure: "tpot_p50_ms", header: "TPOT p50", decimals: 2 },
    Column { figure: "itl_p50_ms", header: "ITL p50", decimals: 2 },
    Column { figure: "itl_p99_ms", header: "p99", decimals: 2 },
    Column { figure: "e2e_p50_ms", header: "E2E p50", decimals: 0 },
    Column { figure: "goodput_req_s", header: "goodput/s", decimals: 2 },
    Column { figure: "client_cpu_ms", header: "client ms", decimals: 0 },
];

/// Figures that servers are compared by.
const COMPARED: [&str; 4] = ["tok_s", "net_tok_s", "ttft_p50_ms", "tpot_p50_ms"];

/// The first server's figures divided by another's, pair by pair of runs.
pub(super) type Ratios = BTreeMap<String, Summary>;

/// How the first server compares with this one; `None` for the first itself.
pub(super) fn ratios(sides: &[Side], side: &Side, case: usize) -> Option<Ratios> {
    let first = sides.first().filter(|first| !std::ptr::eq(*first, side))?;
    let pairs = || first.runs.iter().zip(&side.runs).filter(|(a, b)| !a.foreign && !b.foreign);
    let figures = COMPARED.iter().filter_map(|figure| {
        let ratio = |a: &CaseRun, b: &CaseRun| Some(a.figures.get(*figure)? / b.figures.get(*figure)?);
        let ratios: Vec<f64> =
            pairs().filter_map(|(a, b)| ratio(a.run.cases.get(case)?, b.run.cases.get(case)?)).collect();
        Some(((*figure).to_owned(), Summary::of(&ratios)?))
    });
    Some(figures.collect())
}

/// One run of one case in a line.
pub(super) fn line(case: &CaseRun) -> String {
    let figures = ["tok_s", "ttft_p50_ms", "itl_p99_ms"].into_iter().filter_map(|name| {
        let column = COLUMNS.iter().find(|column| column.figure == name)?;
        Some(format!("{name} {:.*}", column.decimals, case.figures.get(name)?))
    });
    let mut line = format!("{}: {}", case.name, figures.collect::<Vec<_>>().join(", "));
    let errors = errors(&case.figures.iter().map(|(name, value)| (name.as_str(), *value)).collect());
    if errors != "0" {
        line += &format!(", errors {errors}");
    }
    line
}

/// A table, as Markdown.
pub(super) fn table(results: &[SideResult]) -> String {
    let shown: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| results.iter().any(|result| result.case.figures.contains_key(column.figure)))
        .collect();
    let compares = results.iter().any(|result| result.ratios.is_some());
    let mut header = vec!["case".to_owned(), "server".to_owned()];
    header.extend(shown.iter().map(|column| column.header.to_owned()));
    header.extend(["errors", "spread", "runs"].map(str::to_owned));
    if compares {
        header.extend(["first / this: tok/s", "less client", "TTFT"].map(str::to_owned));
    }
    let mut rows = vec![header];
    for SideResult { server, ratios, case } in results {
        let mut row = vec![case.name.clone(), server.clone()];
        row.extend(shown.iter().map(|column| match case.figures.get(column.figure) {
            Some(summary) => format!("{:.*}", column.decimals, summary.median),
            None => "-".to_owned(),
        }));
        row.push(errors(&case.figures.iter().map(|(name, value)| (name.as_str(), value.max)).collect()));
        row.push(format!("{:.1} %", case.dispersion * 100.0));
        row.push(match case.foreign_runs {
            0 => case.runs.len().to_string(),
            foreign => format!("{} ({foreign} foreign)", case.runs.len()),
        });
        if compares {
            row.extend(["tok_s", "net_tok_s", "ttft_p50_ms"].map(|figure| {
                let ratio = ratios.as_ref().and_then(|ratios| ratios.get(figure));
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median))
            }));
        }
        rows.push(row);
    }
    markdown(&rows)
}

/// All faults, and of which kinds: `3 (429: 2, timeout: 1)`.
fn errors(figures: &BTreeMap<&str, f64>) -> String {
    let count = figures.get("errors").copied().unwrap_or(0.0);
    let kinds = figures.iter().filter_map(|(name, value)| Some((name.strip_prefix("errors_")?, value)));
    let kinds: Vec<String> = kinds.map(|(kind, value)| format!("{kind}: {value:.0}")).collect();
    if kinds.is_empty() { format!("{count:.0}") } else { format!("{count:.0} ({})", kinds.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_by_kind() {
        let all = [("errors", 3.0), ("errors_429", 2.0), ("errors_timeout", 1.0), ("tok_s", 5.0)];
        assert_eq!(errors(&all.into_iter().collect()), "3 (429: 2, timeout: 1)");
        assert_eq!(errors(&[("errors", 0.0)].into_iter().collect()), "0");
        let figures = [("tok_s", 10.25), ("errors", 1.0), ("errors_500", 1.0)];
        let case = CaseRun::new("closed4", &figures);
        assert_eq!(line(&case), "closed4: tok_s 10.2, errors 1 (500: 1)");
    }
}
