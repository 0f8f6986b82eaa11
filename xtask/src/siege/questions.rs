//! What the clients ask whose answers are compared: seeded, so that whoever asks again, in whatever company, streamed or not,
//! must be told the same.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};

use super::wire::{self, Answer};
use crate::json::Json;

/// A request, and what it is answered alone.
pub(super) struct Question {
    pub(super) path: &'static str,
    /// JSON without its closing brace, so that a way to be answered can be added.
    body: String,
    alone: Choices,
}

/// Of each choice: thinking, text, and why it ended.
type Choices = BTreeMap<u64, Choice>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Choice {
    thinking: String,
    text: String,
    reason: Option<String>,
}

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";

impl Question {
    /// Asks everything alone.
    pub(super) fn all(port: u16) -> Result<Vec<Self>> {
        let mut questions = Vec::new();
        for (path, body) in bodies() {
            let mut question = Self { path, body, alone: Choices::new() };
            let answer = wire::request(port, "POST", path, Some(&question.body(false)))?;
            question.alone = question.choices(&answer, false)?;
            questions.push(question);
        }
        let said = |choice: &Choice| !choice.text.is_empty() || !choice.thinking.is_empty();
        let answered = questions.iter().filter(|question| question.alone.values().any(said)).count();
        // A stop string may well come first, but not everywhere.
        ensure!(
            answered * 4 >= questions.len() * 3,
            "only {answered} of {} answers have text",
            questions.len()
        );
        Ok(questions)
    }

    /// Whether its answer is one stream of text.
    pub(super) fn has_one_choice(&self) -> bool {
        self.alone.len() == 1
    }

    /// The request.
    pub(super) fn body(&self, streams: bool) -> String {
        format!("{}, \"stream\": {streams}}}", self.body)
    }

    /// An error where the answer is not that of the request alone.
    pub(super) fn check(&self, answer: &Answer, streams: bool) -> Result<()> {
        let choices = self.choices(answer, streams)?;
        ensure!(
            choices == self.alone,
            "{} {}\n  alone: {:?}\n  here:  {choices:?}",
            self.path,
            self.body(streams),
            self.alone
        );
        Ok(())
    }

    fn choices(&self, answer: &Answer, streams: bool) -> Result<Choices> {
        let about = || format!("{} {}: {} {}", self.path, self.body(streams), answer.status, answer.body);
        ensure!(answer.status == 200, "{}", about());
        let mut choices = Choices::new();
        if !streams {
            add(&mut choices, &Json::parse(&answer.body).with_context(about)?, "message")
                .with_context(about)?;
            return Ok(choices);
        }
        let mut events = answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).peekable();
        let mut is_done = false;
        while let Some(event) = events.next() {
            if event == "[DONE]" {
                is_done = events.peek().is_none();
                break;
            }
            let event = Json::parse(event).with_context(about)?;
            add(&mut choices, &event, "delta").with_context(about)?;
        }
        ensure!(is_done, "a stream without its end: {}", about());
        Ok(choices)
    }
}

/// Adds what a document or an event says of choices.
fn add(choices: &mut Choices, document: &Json, message: &str) -> Result<()> {
    if let Ok(error) = document.at("error") {
        bail!("an error: {error:?}");
    }
    for said in document.list("choices")? {
        let choice = choices.entry(said.number("index")? as u64).or_default();
        let text = |path: &str| said.text(path).unwrap_or_default().to_owned();
        choice.text += &text("text");
        choice.text += &text(&format!("{message}.content"));
        choice.thinking += &text(&format!("{message}.reasoning_content"));
        if let Ok(reason) = said.text("finish_reason") {
            choice.reason = Some(reason.to_owned());
        }
    }
    Ok(())
}

/// Long and short, greedy and drawn, one choice and several, with stops and with a grammar.
fn bodies() -> Vec<(&'static str, String)> {
    let starts = [
        "Once upon a time",
        "The dog",
        "In the morning Lily",
        "Tom and his friend",
        "\u{e9}t\u{e9} 2\u{20ac}",
    ];
    let mut bodies = Vec::new();
    for (at, start) in starts.iter().enumerate() {
        let seed = 1000 + at;
        for rest in [
            "\"temperature\": 0, \"max_tokens\": 24",
            "\"temperature\": 0.9, \"max_tokens\": 60, \"ignore_eos\": true",
            "\"temperature\": 1.1, \"max_tokens\": 16, \"n\": 3, \"top_p\": 0.9",
            "\"temperature\": 0.7, \"max_tokens\": 80, \"stop\": [\"\\n\", \" the\"], \"repetition_penalty\": 1.1",
        ] {
            bodies.push((COMPLETIONS, format!("{{\"prompt\": \"{start}\", \"seed\": {seed}, {rest}")));
        }
        let long = format!("{start} ").repeat(20);
        let rest = "\"temperature\": 0.8, \"max_tokens\": 12";
        bodies.push((COMPLETIONS, format!("{{\"prompt\": \"{long}\", \"seed\": {seed}, {rest}")));
        let messages = format!("\"messages\": [{{\"role\": \"user\", \"content\": \"{start}\"}}]");
        bodies
            .push((CHATS, format!("{{{messages}, \"seed\": {seed}, \"temperature\": 1, \"max_tokens\": 40")));
        let json = "\"response_format\": {\"type\": \"json_object\"}, \"max_tokens\": 32";
        bodies.push((CHATS, format!("{{{messages}, \"seed\": {seed}, {json}")));
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_and_whole_answers_are_the_same_choices() -> Result<()> {
        let question =
            Question { path: COMPLETIONS, body: "{\"prompt\": \"x\"".to_owned(), alone: Choices::new() };
        assert_eq!(question.body(true), "{\"prompt\": \"x\", \"stream\": true}");
        let answer = |body: &str| Answer { status: 200, body: body.to_owned(), lines_at: Vec::new() };
        let whole = answer(r#"{"choices":[{"index":0,"text":"ab","finish_reason":"stop"}]}"#);
        let streamed = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n\
                        data: {\"choices\":[{\"index\":0,\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\n";
        let ended = answer(&format!("{streamed}data: [DONE]\n\n"));
        assert_eq!(question.choices(&whole, false)?, question.choices(&ended, true)?);
        assert!(question.choices(&answer(streamed), true).is_err());
        let failed = format!("{streamed}data: {{\"error\":{{\"message\":\"x\"}}}}\n\n");
        assert!(question.choices(&answer(&failed), true).is_err());
        Ok(())
    }
}
