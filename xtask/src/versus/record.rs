//! What was measured as a file: every run as the two programs printed it, their commands, and the ratios. A stand-in for
//! the records of `kipp bench compare`, with which this goes.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::flags::Case;
use super::statistics::Summary;
use super::{Pair, WIDE};
use crate::exec;

/// The cases of one call, as JSON members.
#[derive(Default)]
pub(super) struct Record {
    cases: Vec<String>,
}

impl Record {
    /// Adds a case. What the programs print is JSON already.
    pub(super) fn add(&mut self, case: Case, commands: &[String], pairs: &[Pair]) -> Result<()> {
        let ratio = Summary::of(&pairs.iter().map(Pair::ratio).collect::<Vec<f64>>()).context("no pairs")?;
        let mut text = format!(
            "  {{\"name\":{},\"commands\":[{}],\n   \"ratio\":{{\"median\":{:.4},\"mad\":{:.4},\"wide\":{}}},\n   \
             \"pairs\":[",
            quoted(&case.to_string()),
            commands.iter().map(|command| quoted(command)).collect::<Vec<_>>().join(","),
            ratio.median,
            ratio.mad,
            ratio.mad > WIDE * ratio.median,
        );
        for (index, pair) in pairs.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let one_line = |raw: &str| raw.split_whitespace().collect::<Vec<_>>().join(" ");
            write!(
                text,
                "{comma}\n    {{\"kipp\":{},\"llama_cpp\":{}}}",
                one_line(&pair.kipp.raw),
                one_line(&pair.llama.raw)
            )?;
        }
        text += "]}";
        self.cases.push(text);
        Ok(())
    }

    /// Writes all cases beside the commit that was measured.
    pub(super) fn write(&self, path: &Path, root: &Path) -> Result<()> {
        let git = |args: &[&str]| -> Result<String> {
            Ok(exec::succeed(exec::command("git", args, root))?.stdout.trim().to_owned())
        };
        let changed = git(&["status", "--porcelain", "--", ".", ":!bench/results"])?;
        let text = format!(
            "{{\"what\":\"Kipp and llama.cpp in turn on the same file, pair by pair: cargo xtask versus\",\n \
             \"commit\":{},\"clean\":{},\n \"cases\":[\n{}\n ]}}\n",
            quoted(&git(&["rev-parse", "HEAD"])?),
            changed.is_empty(),
            self.cases.join(",\n")
        );
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

/// A JSON string; what is quoted here has no control bytes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use crate::versus::tests::pair_of;

    #[test]
    fn a_record_is_json_and_holds_every_run() -> Result<()> {
        let mut record = Record::default();
        let case = Case::Prefill { tokens: 512 };
        record.add(case, &["kipp \"x\"".to_owned()], &[pair_of(10.0, 5.0), pair_of(30.0, 10.0)])?;
        let json = Json::parse(&record.cases[0])?;
        assert_eq!(json.text("name")?, "pp512");
        assert_eq!(json.number("ratio.median")?, 2.5);
        assert_eq!(json.list("pairs")?[1].number("llama_cpp.avg_ts")?, 10.0);
        assert_eq!(json.list("commands")?[0], Json::Text("kipp \"x\"".to_owned()));
        Ok(())
    }
}
