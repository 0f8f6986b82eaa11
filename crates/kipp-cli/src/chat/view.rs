//! How an answer looks as it comes: thinking dim, or between its marks where there is no colour. A model's text cannot
//! steer a terminal.

use std::io::{IsTerminal, Write};

use kipp::engine::Delta;

use crate::report::OutputError;

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// What is shown of an answer, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Thinking and content, for a person.
    Terminal { colour: bool },
    /// The content, exactly.
    Content,
    /// Nothing: it will be part of a document.
    Nothing,
}

impl Style {
    /// For standard output. `NO_COLOR` counts if it is not empty.
    pub(super) fn of_output() -> Style {
        let is_terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match is_terminal {
            true => Style::Terminal { colour: !no_color && !dumb },
            false => Style::Content,
        }
    }
}

/// An answer on its way out.
pub(super) struct View<W> {
    out: W,
    style: Style,
    thinking: bool,
    /// The last character that went out.
    last: Option<char>,
}

impl<W: Write> View<W> {
    pub(super) fn new(out: W, style: Style) -> View<W> {
        View { out, style, thinking: false, last: None }
    }

    /// Shows more of the answer.
    pub(super) fn show(&mut self, delta: &Delta) -> anyhow::Result<()> {
        match (self.style, delta) {
            (Style::Nothing, _)
            | (_, Delta::Call(_) | Delta::Arguments(_) | Delta::CallEnd { .. })
            | (Style::Content, Delta::Thinking(_)) => Ok(()),
            (Style::Content, Delta::Content(text)) => self.write(text),
            (Style::Terminal { colour }, Delta::Thinking(text)) => {
                if !std::mem::replace(&mut self.thinking, true) {
                    self.break_line()?;
                    if !colour {
                        self.write("<think>\n")?;
                    }
                }
                let text = harmless(text);
                // Reset after each piece: whatever ends the program, the terminal is not left dim.
                if colour { self.dim(&text) } else { self.write(&text) }
            }
            (Style::Terminal { colour }, Delta::Content(text)) => {
                self.end_thinking(colour)?;
                self.write(&harmless(text))
            }
        }
    }

    /// The answer has ended: what follows begins on a line of its own.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        match self.style {
            Style::Nothing => return Ok(()),
            Style::Terminal { colour: false } => self.end_thinking(false)?,
            Style::Terminal { colour: true } | Style::Content => {}
        }
        match self.last {
            Some('\n') => Ok(()),
            _ => self.write("\n"),
        }
    }

    fn end_thinking(&mut self, colour: bool) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.thinking) {
            return Ok(());
        }
        self.break_line()?;
        self.write(if colour { "\n" } else { "</think>\n\n" })
    }

    fn break_line(&mut self) -> anyhow::Result<()> {
        match self.last {
            None | Some('\n') => Ok(()),
            Some(_) => self.write("\n"),
        }
    }

    fn dim(&mut self, text: &str) -> anyhow::Result<()> {
        self.last = text.chars().last().or(self.last);
        self.put(&format!("{DIM}{text}{PLAIN}"))
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.last = text.chars().last().or(self.last);
        self.put(text)
    }

    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(OutputError)?)
    }
}

/// Text without control characters, but for those that only lay it out.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(style: Style, deltas: &[Delta]) -> String {
        let mut out = Vec::new();
        let mut view = View::new(&mut out, style);
        deltas.iter().for_each(|delta| view.show(delta).unwrap());
        view.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    fn thinking(text: &str) -> Delta {
        Delta::Thinking(text.to_owned())
    }

    fn content(text: &str) -> Delta {
        Delta::Content(text.to_owned())
    }

    #[test]
    fn thinking_is_dim_or_marked_or_left_out() {
        let answer = [thinking("Hm"), thinking("."), content("Hi"), content("!")];
        let colour = Style::Terminal { colour: true };
        assert_eq!(shown(colour, &answer), "\u{1b}[2mHm\u{1b}[0m\u{1b}[2m.\u{1b}[0m\n\nHi!\n");
        let plain = Style::Terminal { colour: false };
        assert_eq!(shown(plain, &answer), "<think>\nHm.\n</think>\n\nHi!\n");
        assert_eq!(shown(plain, &answer[..1]), "<think>\nHm\n</think>\n\n");
        assert_eq!(shown(Style::Content, &answer), "Hi!\n");
        assert_eq!(shown(Style::Nothing, &answer), "");
    }

    #[test]
    fn a_line_is_ended_once_and_control_characters_only_reach_a_file() {
        let plain = Style::Terminal { colour: false };
        assert_eq!(shown(plain, &[content("a\tb\n\u{1b}[2J\n")]), "a\tb\n\\u{1b}[2J\n");
        assert_eq!(shown(Style::Content, &[content("\u{1b}[2J")]), "\u{1b}[2J\n");
        assert_eq!(shown(Style::Content, &[]), "\n");
    }
}
