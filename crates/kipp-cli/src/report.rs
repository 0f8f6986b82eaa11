//! How results and notes are printed: results to standard output, everything else to standard error.

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

use crate::outcome::escape_control;

/// Standard output cannot be written. A type of its own: only its reader may leave early without that being a failure.
#[derive(Debug)]
pub(crate) struct OutputError(pub(crate) io::Error);

impl OutputError {
    /// The reader has what it wanted.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output")
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Prints the one JSON document of a command, on one line.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(document).context("the result as JSON")?;
    line.push('\n');
    text(&line)
}

/// Prints a result exactly as it is.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(OutputError)?)
}

/// Tells the person something beside the result. A standard error that is closed is no reason to fail.
pub(crate) fn note(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape_control(message));
}

/// Rows of cells as columns two blanks apart; the last column is not padded. Cells from files are escaped.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| cell_text(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:<width$}  ");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// A cell stays on its line.
fn cell_text(cell: &str) -> String {
    escape_control(cell).replace('\n', "\\n")
}

/// Bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        c if c >= 1e9 => format!("{:.2} GB", c / 1e9),
        c if c >= 1e6 => format!("{:.1} MB", c / 1e6),
        c if c >= 1e3 => format!("{:.1} kB", c / 1e3),
        c => format!("{c} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_are_escaped() {
        let rows = [vec!["a".to_owned(), "bb\u{1b}".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
        assert_eq!(table(&rows), "a    bb\\u{1b}\nccc  d\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn bytes_are_decimal() {
        assert_eq!(
            (bytes(11_285_224), bytes(999), bytes(1_500_000_000)),
            ("11.3 MB".to_owned(), "999 bytes".to_owned(), "1.50 GB".to_owned())
        );
    }
}
