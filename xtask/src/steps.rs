//! A step of CI, what it may report, and how a list of steps is run: each in turn, a failure does not stop the
//! others, nothing is skipped silently, and a table of seconds closes the run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

/// What every step is handed.
pub(crate) struct Context {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) build_folder: PathBuf,
    /// The long forms of `cargo xtask full`.
    pub(crate) full: bool,
}

impl Context {
    /// A place that is kept between runs and never committed.
    pub(crate) fn target(&self, name: impl AsRef<Path>) -> PathBuf {
        self.build_folder.join(name)
    }

    /// The release build of the program.
    pub(crate) fn kipp(&self) -> PathBuf {
        self.target("release/kipp")
    }
}

/// One gate: a name for `--only`, what it shows, and how.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) run: fn(&Context) -> Result<Report>,
    /// Parts that this step may leave out (`Skip::what`); any other skip is a failure.
    pub(crate) may_skip: &'static [&'static str],
}

/// A part that was left out.
pub(crate) struct Skip {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// What a step that did not fail has to say.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) lines: Vec<String>,
    pub(crate) skips: Vec<Skip>,
}

impl Report {
    /// Adds a line of figures.
    pub(crate) fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds the line of each part that held; an error with all the others, if there are any.
    pub(crate) fn say_all(&mut self, results: Vec<Result<String>>) -> Result<()> {
        let mut faults = Vec::new();
        for result in results {
            match result {
                Ok(line) => self.say(line),
                Err(fault) => faults.push(format!("{fault:#}")),
            }
        }
        if faults.is_empty() { Ok(()) } else { bail!("{}\n{} failed", faults.join("\n"), faults.len()) }
    }

    /// Records that a part was left out.
    pub(crate) fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.skips.push(Skip { what: what.into(), why: why.into() });
    }
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Failed,
}

struct Row {
    name: &'static str,
    verdict: Verdict,
    seconds: f64,
    skipped: usize,
}

/// Runs all steps and prints their table; an error if any failed.
pub(crate) fn run(steps: &[&Step], context: &Context) -> Result<()> {
    let mut rows = Vec::new();
    for step in steps {
        println!("== {}: {}", step.name, step.shows);
        let started = Instant::now();
        let result = (step.run)(context);
        let seconds = started.elapsed().as_secs_f64();
        let (verdict, skipped) = tell(step, result);
        rows.push(Row { name: step.name, verdict, seconds, skipped });
    }
    println!("\n{}", table(&rows));
    let failed = rows.iter().filter(|row| row.verdict == Verdict::Failed).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} steps failed", rows.len());
    }
    Ok(())
}

/// Prints what a step said and judges its skips.
fn tell(step: &Step, result: Result<Report>) -> (Verdict, usize) {
    let report = match result {
        Ok(report) => report,
        Err(error) => {
            println!("{error:#}\n   FAILED: {}", step.name);
            return (Verdict::Failed, 0);
        }
    };
    for line in &report.lines {
        println!("   {line}");
    }
    let mut verdict = Verdict::Passed;
    for skip in &report.skips {
        if step.may_skip.contains(&skip.what.as_str()) {
            println!("   skipped {}: {}", skip.what, skip.why);
        } else {
            println!(
                "   skipped {}: {} (not declared as allowed)\n   FAILED: {}",
                skip.what, skip.why, step.name
            );
            verdict = Verdict::Failed;
        }
    }
    (verdict, report.skips.len())
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("total".len());
    let mut text = String::new();
    for row in rows {
        let word = if row.verdict == Verdict::Passed { "passed" } else { "FAILED" };
        let skips =
            if row.skipped > 0 { format!("  ({} skipped, see above)", row.skipped) } else { String::new() };
        text.push_str(&format!("{:width$}  {word}  {:7.1} s{skips}\n", row.name, row.seconds));
    }
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    text.push_str(&format!("{:width$}          {total:7.1} s", "total"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(run: fn(&Context) -> Result<Report>) -> Step {
        Step { name: "sample", shows: "nothing", run, may_skip: &["allowed"] }
    }

    fn skipping(what: &str) -> Result<Report> {
        let mut report = Report::default();
        report.skip(what, "no reason");
        Ok(report)
    }

    fn outcome(run: fn(&Context) -> Result<Report>) -> bool {
        let context =
            Context { root: PathBuf::from("."), build_folder: PathBuf::from("target"), full: false };
        super::run(&[&step(run)], &context).is_ok()
    }

    #[test]
    fn only_a_declared_skip_passes() {
        assert!(outcome(|_| Ok(Report::default())));
        assert!(outcome(|_| skipping("allowed")));
        assert!(!outcome(|_| skipping("another")));
        assert!(!outcome(|_| bail!("broken")));
    }

    #[test]
    fn the_table_adds_up() {
        let row = |name, seconds| Row { name, verdict: Verdict::Passed, seconds, skipped: 0 };
        let text = table(&[row("fmt", 1.5), row("gates", 2.0)]);
        assert_eq!(text, "fmt    passed      1.5 s\ngates  passed      2.0 s\ntotal              3.5 s");
    }
}
