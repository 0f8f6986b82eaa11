//! A chat in a terminal: lines from the editor, answers as they come, and what Ctrl-C means where.

use kipp::engine::Delta;

use super::Chat;
use super::editor::{Editor, Input};
use super::execute::Step;
use super::turn::Turn;
use super::view::{Style, View};
use crate::outcome::Outcome;
use crate::report;

/// Talks until the person ends it.
pub(super) fn talk(mut chat: Chat) -> anyhow::Result<Outcome> {
    let mut editor = Editor::open()?;
    report::note(&format!("{}: /help lists the commands, Ctrl-D ends the chat", chat.name));
    let style = Style::of_output();
    // Ctrl-C was the last thing that happened, so the next one ends the chat.
    let mut pressed = false;
    loop {
        chat.prepare()?;
        match editor.read()? {
            Input::End => return Ok(Outcome::Done),
            Input::Interrupt if pressed => return Ok(Outcome::Interrupted),
            Input::Interrupt => {
                pressed = true;
                report::note("Ctrl-C again, or Ctrl-D, ends the chat");
            }
            Input::Discarded => pressed = false,
            Input::Line(line) => {
                let mut view = View::new(std::io::stdout(), style);
                let step = chat.take(&line, &mut |delta: &Delta| view.show(delta))?;
                pressed = false;
                match step {
                    Step::Turn(Turn::Answered) => {
                        view.end()?;
                        pressed = tell_end(&chat);
                    }
                    Step::Turn(Turn::Unanswered) => {
                        pressed = true;
                        report::note(
                            "\nstopped before the answer began: the message is taken back. Ctrl-C again ends the chat",
                        );
                    }
                    Step::Turn(Turn::Refused(reason)) | Step::Refused(reason) => report::note(&reason),
                    Step::Done => {}
                    Step::Exit => return Ok(Outcome::Done),
                }
            }
        }
    }
}

/// Says how the last answer ended, where that needs a word; whether Ctrl-C ended it.
fn tell_end(chat: &Chat) -> bool {
    let Some(answered) = &chat.last else { return false };
    let stopped = answered.completion.finish_reason == crate::generate::FinishReason::Interrupted;
    if let Some(note) = answered.note() {
        let more = if stopped { ". Ctrl-C again ends the chat" } else { "" };
        report::note(&format!("({note}{more})"));
    }
    stopped
}
