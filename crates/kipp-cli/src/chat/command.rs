//! Lines that begin with a slash: what they ask for. Carrying them out is `execute`'s matter.

use std::path::PathBuf;

/// Names and what they do, as `/help` shows them.
const HELP: [(&str, &str); 11] = [
    ("/help", "this list"),
    ("/clear", "forget the conversation, but for the system message"),
    ("/system [TEXT | -]", "show the system message, change it, or take it away"),
    ("/think [on | off | auto]", "whether answers begin with thinking; auto leaves it to the template"),
    ("/set [NAME VALUE]", "show the settings, or change one: /set temperature 0.7"),
    ("/show", "the model, the conversation, and the figures of the last answer"),
    ("/save FILE", "write the messages as JSON"),
    ("/load FILE", "go on from such a file"),
    ("/retry", "answer the last message again"),
    ("/undo", "take the last message and its answer back"),
    ("/exit", "end the chat; Ctrl-D does, too"),
];

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Help,
    Clear,
    ShowSystem,
    /// `None` takes it away.
    SetSystem(Option<String>),
    ShowThinking,
    /// `None` leaves it to the template.
    SetThinking(Option<bool>),
    ShowSettings,
    Set(String, String),
    Show,
    Save(PathBuf),
    Load(PathBuf),
    Retry,
    Undo,
    Exit,
}

/// The list of commands.
pub(super) fn help() -> String {
    let width = HELP.iter().map(|(usage, _)| usage.len()).max().unwrap_or(0);
    let lines = HELP.iter().map(|(usage, does)| format!("{usage:width$}  {does}\n"));
    lines
        .chain(["A backslash at the end of a line goes on in the next; Ctrl-C stops an answer.".to_owned()])
        .collect()
}

/// The names that begin like this.
pub(super) fn beginning_with(text: &str) -> Vec<String> {
    let names = HELP.iter().filter_map(|(usage, _)| usage.split(' ').next());
    names.filter(|name| name.starts_with(text)).map(str::to_owned).collect()
}

/// Reads a line: `None` where it is a message. A slash and letters are a command or a mistake; a path or a comment is
/// neither.
pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
    let rest = line.strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
    is_name.then(|| command(name, argument.trim()))
}

fn command(name: &str, argument: &str) -> Result<Command, String> {
    let command = match (name, argument) {
        ("help", "") => Command::Help,
        ("clear" | "new", "") => Command::Clear,
        ("system", "") => Command::ShowSystem,
        ("system", "-") => Command::SetSystem(None),
        ("system", text) => Command::SetSystem(Some(text.to_owned())),
        ("think", "") => Command::ShowThinking,
        ("think", "on") => Command::SetThinking(Some(true)),
        ("think", "off") => Command::SetThinking(Some(false)),
        ("think", "auto") => Command::SetThinking(None),
        ("set", "") => Command::ShowSettings,
        ("set", setting) => match setting.split_once(char::is_whitespace) {
            Some((name, value)) => Command::Set(name.to_owned(), value.trim().to_owned()),
            None => return Err(usage(name)),
        },
        ("show" | "stats", "") => Command::Show,
        ("save", file) if !file.is_empty() => Command::Save(PathBuf::from(file)),
        ("load", file) if !file.is_empty() => Command::Load(PathBuf::from(file)),
        ("retry", "") => Command::Retry,
        ("undo", "") => Command::Undo,
        ("exit" | "quit", "") => Command::Exit,
        _ => return Err(usage(name)),
    };
    Ok(command)
}

/// How a command is used, or that there is none.
fn usage(name: &str) -> String {
    let is_it = |usage: &&str| usage.split(' ').next().is_some_and(|first| first[1..] == *name);
    match HELP.iter().map(|(usage, _)| *usage).find(is_it) {
        Some(usage) => format!("usage: {usage}"),
        None => format!(
            "there is no command /{name}; /help lists them. A blank before the slash makes the line a message"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_their_arguments() {
        for (line, command) in [
            ("/help", Command::Help),
            ("/new", Command::Clear),
            ("/system Be kind.\nAlways.", Command::SetSystem(Some("Be kind.\nAlways.".to_owned()))),
            ("/system -", Command::SetSystem(None)),
            ("/think off", Command::SetThinking(Some(false))),
            ("/set temperature  0.7 ", Command::Set("temperature".to_owned(), "0.7".to_owned())),
            ("/save a b.json", Command::Save(PathBuf::from("a b.json"))),
            ("/stats", Command::Show),
            ("/exit ", Command::Exit),
        ] {
            assert_eq!(parse(line), Some(Ok(command)), "{line:?}");
        }
    }

    #[test]
    fn a_mistake_is_no_message_and_a_path_is_one() {
        for (line, hint) in [
            ("/nope", "no command /nope"),
            ("/think maybe", "usage: /think"),
            ("/save", "usage: /save FILE"),
            ("/set temperature", "usage: /set"),
            ("/exit now", "usage: /exit"),
        ] {
            assert!(parse(line).unwrap().unwrap_err().contains(hint), "{line:?}");
        }
        for line in [
            "",
            "hi /help",
            " /help",
            "/",
            "/ 2",
            "//x",
            "/* c */",
            "/etc/hosts: what is it?",
            "/2 is a half",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn every_command_of_the_list_is_one() {
        for (usage, _) in HELP {
            let name = usage.split(' ').next().unwrap();
            let hint = parse(name).unwrap().err().unwrap_or_default();
            assert!(!hint.contains("no command"), "{name}: {hint}");
            assert!(help().contains(usage));
        }
        assert_eq!(beginning_with("/s"), ["/system", "/set", "/show", "/save"]);
    }
}
