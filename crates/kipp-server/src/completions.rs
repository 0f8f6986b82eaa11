//! `/v1/completions`: raw prompts, as text or ids, one or several. Control tokens in a text count as such: the caller
//! writes the format.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use kipp::TokenId;
use kipp::engine::{Event, FinishReason, Request, TokenScore};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::fields::{Fields, parse_body};
use crate::logprobs::Lists;
use crate::running::Running;
use crate::sse::{self, Shape};
use crate::terms::{StreamTerms, Terms, alternatives, ids_of};
use crate::usage::{Timings, Usage};

/// Tokens of a completion where nobody says how many: OpenAI's number.
const DEFAULT_TOKENS: usize = 16;

/// Prompts of one request at most, as many as may wait by default.
const MAX_PROMPTS: usize = 256;

/// The endpoint.
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let preparing = Arc::clone(&app);
    let prepared =
        body::off_thread(bytes.len(), move || Prepared::parse(&preparing, &parse_body(&bytes)?)).await?;
    let Prepared { requests, terms, echoed } = prepared;
    let prompt_tokens: usize = requests.iter().map(|request| request.prompt.len()).sum();
    let logprobs = requests.iter().any(|request| request.logprobs.is_some());
    let running = Running::start(&app, requests, "prompt")?;
    let completion = Completion {
        id: app.new_id("cmpl-"),
        app,
        choices: (0..echoed.len() * terms.choices as usize).map(|_| Choice::default()).collect(),
        n: terms.choices as usize,
        echoed,
        logprobs,
        usage: Usage { prompt_tokens, ..Usage::default() },
        timings: Timings::default(),
        stream: terms.stream.unwrap_or_default(),
    };
    Ok(sse::answer(running, completion, terms.stream.is_some()).await)
}

/// A request that may be run.
struct Prepared {
    requests: Vec<Request>,
    terms: Terms,
    /// The prompts, where they are to be part of the answers; one entry a prompt.
    echoed: Vec<Option<Echo>>,
}

/// A prompt that is part of its answers.
struct Echo {
    text: String,
    ids: Vec<TokenId>,
}

impl Prepared {
    fn parse(app: &App, map: &Map<String, Value>) -> Result<Prepared, ApiError> {
        let fields = Fields::of(map);
        let terms = Terms::parse(app, &fields)?;
        let echo = fields.boolean("echo")?.unwrap_or(false);
        let logprobs = alternatives(&fields, "logprobs")?;
        if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::field("suffix", "is not supported"));
        }
        let prompts = prompts(app, &fields)?;
        app.check_unknown(fields.unknown())?;
        let (mut requests, mut echoed) = (Vec::new(), Vec::new());
        for (ids, text) in prompts {
            let text = match text {
                _ if !echo => String::new(),
                Some(text) => text.to_owned(),
                None => app.info.tokenizer.decode(&ids, false).map_err(|e| ApiError::field("prompt", e))?,
            };
            echoed.push(echo.then(|| Echo { text, ids: ids.clone() }));
            let request = terms.request(ids, DEFAULT_TOKENS);
            requests.push(Request { logprobs, prompt_logprobs: logprobs.filter(|_| echo), ..request });
        }
        Ok(Prepared { requests, terms, echoed })
    }
}

/// The ids of a prompt, and its text where it was one.
type Prompt<'a> = (Vec<TokenId>, Option<&'a str>);

/// A text, ids, or a list of either.
fn prompts<'a>(app: &App, fields: &Fields<'a>) -> Result<Vec<Prompt<'a>>, ApiError> {
    const PROMPT: &str = "a text, token ids, or a list of either";
    let of_text = |text: &'a str| Ok((app.encode(text)?, Some(text)));
    let value = fields.value("prompt").unwrap_or(&Value::Null);
    let prompts = match value {
        Value::String(text) => vec![of_text(text)?],
        Value::Array(items) if items.first().is_some_and(Value::is_number) => {
            vec![(ids_of(items, "prompt")?, None)]
        }
        Value::Array(items) if items.len() > MAX_PROMPTS => {
            let reason = format!("must hold at most {MAX_PROMPTS} prompts, found {}", items.len());
            return Err(ApiError::field("prompt", reason));
        }
        Value::Array(items) if !items.is_empty() => {
            let of_texts = items.iter().all(Value::is_string);
            let one = |item: &'a Value| match item {
                Value::String(text) if of_texts => of_text(text),
                Value::Array(ids) => Ok((ids_of(ids, "prompt")?, None)),
                other => Err(ApiError::found("prompt", PROMPT, other)),
            };
            items.iter().map(one).collect::<Result<_, _>>()?
        }
        other => return Err(ApiError::found("prompt", PROMPT, other)),
    };
    match prompts.iter().any(|(ids, _)| ids.is_empty()) {
        true => Err(ApiError::field("prompt", "must not be empty: there is no token to start from")),
        false => Ok(prompts),
    }
}

/// One answer as it grows.
#[derive(Default)]
struct Choice {
    lists: Lists,
    /// Gathered, where nothing is streamed.
    text: String,
    finish: Option<&'static str>,
}

/// Text that a choice goes on by.
struct Piece {
    index: usize,
    text: String,
    finish: Option<&'static str>,
}

/// The answers of one request.
struct Completion {
    app: Arc<App>,
    id: String,
    choices: Vec<Choice>,
    /// Choices a prompt.
    n: usize,
    echoed: Vec<Option<Echo>>,
    logprobs: bool,
    usage: Usage,
    timings: Timings,
    stream: StreamTerms,
}

impl Completion {
    /// What an event adds to the answers; log-probabilities go into their lists.
    fn pieces(&mut self, prompt: usize, event: Event) -> Result<Vec<Piece>, ApiError> {
        let first = prompt * self.n;
        Ok(match event {
            Event::Started { cached_tokens, .. } => {
                self.usage.cached_tokens += cached_tokens;
                if self.logprobs { Vec::new() } else { self.echo(prompt, &[]) }
            }
            Event::Prompt { scores } => self.echo(prompt, &scores),
            Event::Tokens { choice, tokens } => {
                self.usage.completion_tokens += tokens.len();
                let index = first + choice as usize;
                let mut text = String::new();
                for token in tokens {
                    if let Some(choice) = self.choices.get_mut(index).filter(|_| self.logprobs) {
                        let tokenizer = &self.app.info.tokenizer;
                        choice.lists.push(tokenizer, token.id, token.score.as_ref(), &token.text);
                    }
                    text += &token.text;
                }
                vec![Piece { index, text, finish: None }]
            }
            Event::Finished { choice, reason, text, stats } => {
                self.timings.add(stats);
                let finish = Some(finish_name(reason)?);
                vec![Piece { index: first + choice as usize, text, finish }]
            }
            Event::Failed(failure) => return Err(failure.into()),
        })
    }

    /// The prompt as the beginning of each of its choices.
    fn echo(&mut self, prompt: usize, scores: &[TokenScore]) -> Vec<Piece> {
        let Some(Some(Echo { text, ids })) = self.echoed.get(prompt) else { return Vec::new() };
        let range = prompt * self.n..(prompt + 1) * self.n;
        if self.logprobs {
            let tokenizer = &self.app.info.tokenizer;
            let mut decoder = tokenizer.stream_decoder(false);
            // The first token has no score.
            let scored = std::iter::once(None).chain(scores.iter().map(Some));
            for (id, score) in ids.iter().zip(scored) {
                let text = decoder.push(*id).map(str::to_owned).unwrap_or_default();
                for choice in &mut self.choices[range.clone()] {
                    choice.lists.push(tokenizer, *id, score, &text);
                }
            }
        }
        range.map(|index| Piece { index, text: text.clone(), finish: None }).collect()
    }

    fn logprobs_of(&mut self, index: usize) -> Value {
        match self.choices.get_mut(index) {
            Some(choice) if self.logprobs => choice.lists.take(),
            _ => Value::Null,
        }
    }

    fn document(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.app.now(),
            "model": self.app.model(),
            "choices": choices,
        })
    }
}

impl Shape for Completion {
    fn chunks(&mut self, prompt: usize, event: Event) -> Result<Vec<Value>, ApiError> {
        let pieces = self.pieces(prompt, event)?;
        let mut chunks = Vec::new();
        for Piece { index, text, finish } in pieces {
            if text.is_empty() && finish.is_none() && !self.logprobs {
                continue;
            }
            let logprobs = self.logprobs_of(index);
            let choice = json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish});
            let mut chunk = self.document(vec![choice]);
            if self.stream.continuous_usage {
                chunk["usage"] = self.usage.json();
            } else if self.stream.usage {
                chunk["usage"] = Value::Null;
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn last_chunks(&mut self) -> Vec<Value> {
        if !self.stream.usage {
            return Vec::new();
        }
        let mut chunk = self.document(Vec::new());
        chunk["usage"] = self.usage.json();
        chunk["timings"] = self.timings.json();
        vec![chunk]
    }

    fn keep(&mut self, prompt: usize, event: Event) -> Result<(), ApiError> {
        for piece in self.pieces(prompt, event)? {
            if let Some(choice) = self.choices.get_mut(piece.index) {
                choice.text += &piece.text;
                choice.finish = choice.finish.or(piece.finish);
            }
        }
        Ok(())
    }

    fn whole(mut self) -> Value {
        let mut choices = Vec::new();
        for index in 0..self.choices.len() {
            let logprobs = self.logprobs_of(index);
            let Choice { text, finish, .. } = &self.choices[index];
            choices
                .push(json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}));
        }
        let mut document = self.document(choices);
        document["usage"] = self.usage.json();
        document["timings"] = self.timings.json();
        document
    }
}

/// A reason as OpenAI names it. What was cancelled without its client asking ended because nobody read it.
pub(crate) fn finish_name(reason: FinishReason) -> Result<&'static str, ApiError> {
    match reason {
        FinishReason::Stop => Ok("stop"),
        FinishReason::Length => Ok("length"),
        FinishReason::Cancelled => Err(ApiError::internal("the answer was cancelled")),
    }
}
