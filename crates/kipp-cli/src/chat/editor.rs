//! The line editor: a message over one or several lines, what was typed before, and names of commands on Tab.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Helper};

use super::{command, history};
use crate::report;

const PROMPT: &str = "> ";

/// Lines that are remembered. A file of a few hundred kilobytes at most, unless somebody pastes books.
const REMEMBERED: usize = 1000;

/// What the person did.
pub(super) enum Input {
    Line(String),
    /// Ctrl-C on a line without text.
    Interrupt,
    /// Ctrl-C on a line with text, which is gone.
    Discarded,
    /// Ctrl-D.
    End,
}

/// The editor and its history.
pub(super) struct Editor {
    editor: rustyline::Editor<Line, FileHistory>,
    /// Where lines are remembered, if anywhere.
    history: Option<PathBuf>,
}

impl Editor {
    /// An editor that knows the lines of earlier chats. Where they cannot be read it goes on without, and says so.
    pub(super) fn open() -> anyhow::Result<Editor> {
        let config = Config::builder().max_history_size(REMEMBERED).context("the line editor's history")?;
        // As in shells: a line that begins with a blank is not remembered.
        let config = config.history_ignore_space(true).build();
        let mut editor = rustyline::Editor::with_config(config).context("the line editor")?;
        editor.set_helper(Some(Line::default()));
        let mut history = history::path();
        if let Some(path) = history.as_ref().filter(|path| path.exists())
            && let Err(error) = editor.load_history(path)
        {
            report::note(&format!("note: {}: {error}; lines are not remembered", path.display()));
            history = None;
        }
        Ok(Editor { editor, history })
    }

    /// Reads a message. A backslash at the end of a line stands for a line break.
    pub(super) fn read(&mut self) -> anyhow::Result<Input> {
        loop {
            return match self.editor.readline(PROMPT) {
                Ok(text) => {
                    self.remember(&text);
                    Ok(Input::Line(text.replace("\\\n", "\n")))
                }
                Err(ReadlineError::Eof) => Ok(Input::End),
                Err(ReadlineError::Interrupted) => {
                    let is_empty = self.editor.helper().is_none_or(|line| line.is_empty.get());
                    Ok(if is_empty { Input::Interrupt } else { Input::Discarded })
                }
                // The window has another size.
                Err(ReadlineError::Signal(_)) => continue,
                Err(error) => Err(error).context("the terminal"),
            };
        }
    }

    fn remember(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let added = self.editor.add_history_entry(text);
        let Some(path) = &self.history else { return };
        let kept = history::create_folder(path).and_then(|()| {
            added.and_then(|_| self.editor.append_history(path)).map_err(std::io::Error::other)
        });
        if let Err(error) = kept {
            report::note(&format!("note: {}: {error}; lines are not remembered", path.display()));
            self.history = None;
        }
    }
}

/// What the editor asks about the line.
struct Line {
    is_empty: Cell<bool>,
}

impl Default for Line {
    fn default() -> Line {
        Line { is_empty: Cell::new(true) }
    }
}

impl Helper for Line {}

impl Highlighter for Line {}

impl Hinter for Line {
    type Hint = String;

    /// Gives none: it is where the editor shows the line after each change, and Ctrl-C takes the line away without saying
    /// what it was.
    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.is_empty.set(line.is_empty());
        None
    }
}

impl Validator for Line {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match goes_on(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Line {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..position];
        Ok((0, if before.starts_with('/') { command::beginning_with(before) } else { Vec::new() }))
    }
}

/// Whether a message is not at its end.
fn goes_on(text: &str) -> bool {
    text.ends_with('\\')
}
