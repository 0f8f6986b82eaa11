//! A line of input, carried out: a message is answered, a command does its work. What it has to say beside an answer it
//! says on standard error.

use kipp::chat::{Conversation, Message, Role};

use super::answer::Show;
use super::command::{self, Command};
use super::open::beginning;
use super::turn::Turn;
use super::{Chat, file};
use crate::{prompt, report};

/// What became of a line.
pub(super) enum Step {
    Turn(Turn),
    /// A command was carried out.
    Done,
    /// A command could not be, for this reason.
    Refused(String),
    Exit,
}

impl Chat {
    /// Takes a line. Blanks alone are nothing.
    pub(super) fn take(&mut self, line: &str, show: Show<'_>) -> anyhow::Result<Step> {
        match command::parse(line) {
            None if line.trim().is_empty() => Ok(Step::Done),
            None => Ok(Step::Turn(self.ask(line, show)?)),
            Some(Ok(Command::Exit)) => Ok(Step::Exit),
            Some(Ok(Command::Retry)) => self.retry(show),
            Some(Ok(command)) => Ok(match self.execute(command) {
                Ok(said) => {
                    said.iter().for_each(|line| report::note(line));
                    Step::Done
                }
                Err(reason) => Step::Refused(reason),
            }),
            Some(Err(reason)) => Ok(Step::Refused(reason)),
        }
    }

    /// Carries a command out; what it says, or why it cannot be.
    fn execute(&mut self, command: Command) -> Result<Vec<String>, String> {
        let said = match command {
            Command::Help => command::help(),
            Command::Clear => {
                let system = self.system().map(str::to_owned);
                self.conversation = beginning(system, self.conversation.enable_thinking);
                self.last = None;
                "a new conversation".to_owned()
            }
            Command::ShowSystem => self.system().unwrap_or("no system message").to_owned(),
            Command::SetSystem(text) => {
                self.set_system(text);
                return Ok(Vec::new());
            }
            Command::ShowThinking => format!("thinking: {}", self.thinking()),
            Command::SetThinking(choice) => {
                self.conversation.enable_thinking = choice;
                return Ok(Vec::new());
            }
            Command::ShowSettings => return Ok(self.settings.lines()),
            Command::Set(name, value) => {
                self.settings.set(&name, &value)?;
                return Ok(Vec::new());
            }
            Command::Show => return Ok(self.lines()),
            Command::Save(path) => {
                file::save(&path, &self.conversation).map_err(|error| format!("{error:#}"))?;
                format!("{}: {} messages", path.display(), self.conversation.messages.len())
            }
            Command::Load(path) => {
                let loaded = prompt::conversation_file(&path).map_err(|error| format!("{error:#}"))?;
                self.load(loaded);
                format!("{}: {} messages", path.display(), self.conversation.messages.len())
            }
            Command::Undo => {
                let at = self.last_message().ok_or("there is no turn to take back")?;
                self.conversation.messages.truncate(at);
                self.last = None;
                format!("taken back; {} messages are left", self.conversation.messages.len())
            }
            // Those need more than this.
            Command::Retry | Command::Exit => return Ok(Vec::new()),
        };
        Ok(vec![said])
    }

    /// Answers the last message again, or for the first time. The old answer goes when the new one is there.
    fn retry(&mut self, show: Show<'_>) -> anyhow::Result<Step> {
        let Some(at) = self.last_message() else {
            return Ok(Step::Refused("there is no message to answer again".to_owned()));
        };
        let mut conversation = self.conversation.clone();
        conversation.messages.truncate(at + 1);
        Ok(Step::Turn(self.answer(conversation, show)?))
    }

    /// Where the last message of the person is.
    fn last_message(&self) -> Option<usize> {
        self.conversation.messages.iter().rposition(|message| message.role == Role::User)
    }

    fn system(&self) -> Option<&str> {
        let first = self.conversation.messages.first()?;
        (first.role == Role::System).then_some(first.content.as_str())
    }

    fn set_system(&mut self, text: Option<String>) {
        let messages = &mut self.conversation.messages;
        if messages.first().is_some_and(|first| first.role == Role::System) {
            messages.remove(0);
        }
        if let Some(text) = text {
            messages.insert(0, Message::new(Role::System, text));
        }
    }

    fn load(&mut self, loaded: Conversation) {
        let thinking = loaded.enable_thinking.or(self.conversation.enable_thinking);
        // A chat always goes on with an answer.
        self.conversation = Conversation { enable_thinking: thinking, add_generation_prompt: true, ..loaded };
        self.last = None;
    }

    fn thinking(&self) -> &'static str {
        match self.conversation.enable_thinking {
            Some(true) => "on",
            Some(false) => "off",
            None => "auto",
        }
    }

    /// What `/show` says.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("model {}, context {} tokens", self.name, self.context_tokens),
            format!("{} messages, thinking {}", self.conversation.messages.len(), self.thinking()),
        ];
        if let Some(system) = self.system() {
            lines.push(format!("system message: {system}"));
        }
        if let Some(last) = &self.last {
            let used = self.context_tokens - last.left_tokens;
            lines.push(format!("{used} tokens of the context in use, {} left", last.left_tokens));
            lines.push(format!("last answer: {}", last.completion.measured.line()));
        }
        lines
    }
}
