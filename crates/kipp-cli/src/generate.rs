//! One completion: a request to an engine, and its events as text. It knows no flags, and only Ctrl-C makes it print.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kipp::TokenId;
use kipp::engine::{self, Engine, EngineHandle, Event, Request, RequestStats};
use kipp::model::Interrupt;
use serde::Serialize;

use crate::timings::Measured;
use crate::{interrupt, report};

/// Between two looks at Ctrl-C where nothing happens; short enough to feel immediate.
const LOOK: Duration = Duration::from_millis(20);

/// After so long without an end, who pressed Ctrl-C is told what it waits for.
const PATIENCE: Duration = Duration::from_millis(700);

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// As many tokens as asked for, or as the context holds.
    Length,
    /// Ctrl-C.
    Interrupted,
}

/// What was generated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Completion {
    /// The ids, without the end token.
    pub(crate) tokens: Vec<TokenId>,
    /// Their text, without special tokens and without what a stop string matched.
    pub(crate) text: String,
    pub(crate) finish_reason: FinishReason,
    pub(crate) measured: Measured,
}

/// What a completion goes on by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// The token; `None` for what was held back until the end.
    pub(crate) token: Option<TokenId>,
    /// Text that nothing can take back; may be empty.
    pub(crate) text: &'a str,
}

/// Takes what is generated, as soon as it is.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Piece<'_>) -> anyhow::Result<()>;

/// The events of the one request. Unbounded, because a terminal may be held up for as long as a person likes; an answer
/// has no more events than the context has tokens.
struct Events(mpsc::Sender<Event>);

impl engine::Sink for Events {
    fn deliver(&mut self, event: Event) -> ControlFlow<()> {
        match self.0.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Completes a request of one choice, and hands the engine back. Writing the text does not hold the engine up. Ctrl-C
/// raises `interrupt`, which is the model's, so that a long step ends early too.
pub(crate) fn generate(
    engine: Engine,
    interrupt: &Interrupt,
    request: Request,
    sink: Sink<'_>,
) -> anyhow::Result<(Completion, Engine)> {
    let handle = EngineHandle::start(engine).context("a thread for the engine")?;
    let (sender, events) = mpsc::channel();
    let id = handle.submit(request, Box::new(Events(sender)))?;
    let (mut tokens, mut text) = (Vec::new(), String::new());
    let mut emit = |text: &mut String, token: Option<TokenId>, more: &str| {
        *text += more;
        sink(Piece { token, text: more })
    };
    let (mut given_up, mut told) = (None, false);
    loop {
        if interrupt::requested() && given_up.is_none() {
            given_up = Some(Instant::now());
            handle.cancel(id);
            interrupt.raise();
        }
        if !told && given_up.is_some_and(|since| since.elapsed() >= PATIENCE) {
            told = true;
            report::note("ending after the layer under way; Ctrl-C again ends at once");
        }
        match events.recv_timeout(LOOK) {
            Ok(Event::Started { .. } | Event::Prompt { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Tokens { tokens: more, .. }) => {
                for token in more {
                    tokens.push(token.id);
                    emit(&mut text, Some(token.id), &token.text)?;
                }
            }
            Ok(Event::Finished { reason, text: rest, stats, .. }) => {
                emit(&mut text, None, &rest)?;
                let finish_reason = FinishReason::from(reason);
                let completion = Completion { tokens, text, finish_reason, measured: Measured::from(stats) };
                let engine = handle.close().context("the engine's thread did not survive")?;
                return Ok((completion, engine));
            }
            Ok(Event::Failed(failure)) => return Err(failure.into()),
            Err(RecvTimeoutError::Disconnected) => bail!("the engine ended without an answer"),
        }
    }
}

impl From<engine::FinishReason> for FinishReason {
    fn from(reason: engine::FinishReason) -> FinishReason {
        match reason {
            engine::FinishReason::Stop => FinishReason::Stop,
            engine::FinishReason::Length => FinishReason::Length,
            engine::FinishReason::Cancelled => FinishReason::Interrupted,
        }
    }
}

impl From<RequestStats> for Measured {
    fn from(stats: RequestStats) -> Measured {
        Measured {
            // Interrupted, it evaluated less than the prompt.
            prefill_tokens: stats.evaluated_tokens,
            prefill: stats.prefill,
            cached_tokens: stats.cached_tokens,
            decode_tokens: stats.completion_tokens.saturating_sub(1),
            decode: stats.decode,
            drafted_tokens: stats.drafted_tokens,
            accepted_tokens: stats.accepted_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kipp::ModelSpec;
    use kipp::backend::{BackendError, BackendInfo};
    use kipp::batch::{Answer, Batch, Outputs};
    use kipp::engine::{EngineOptions, SystemClock};
    use kipp::kv::{BlockId, KvScheme};
    use kipp::model::Forward;
    use kipp::tokenizer::Tokenizer;

    use super::*;

    /// Says `script[n]` after `prompt` tokens and n more, and remembers what it was asked to evaluate.
    struct Scripted {
        spec: ModelSpec,
        prompt: usize,
        script: Vec<TokenId>,
        evaluated: Arc<Mutex<Vec<TokenId>>>,
        answers: Vec<(usize, Answer)>,
    }

    impl Forward for Scripted {
        fn spec(&self) -> &ModelSpec {
            &self.spec
        }
        fn describe(&self) -> BackendInfo {
            let (kernels, activations) = (String::new(), String::new());
            BackendInfo { name: "scripted", kernels, activations, threads: 1, demoted: Vec::new() }
        }
        fn kv_scheme(&self) -> KvScheme {
            KvScheme::F32
        }
        fn kv_blocks(&self) -> usize {
            4
        }
        fn max_rows(&self) -> usize {
            3
        }
        fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
            let mut evaluated = self.evaluated.lock().unwrap();
            evaluated.extend(&batch.tokens);
            let said = evaluated.len().saturating_sub(self.prompt);
            let mut logits = vec![0.0; self.spec.vocab_size];
            if let Some(id) = self.script.get(said) {
                logits[*id as usize] = 1.0;
            }
            let asking = batch.asking().map(|(row, _)| (row, Answer::Logits(logits.clone())));
            self.answers = asking.collect();
            Ok(())
        }
        fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
            outputs.answers = std::mem::take(&mut self.answers);
            Ok(())
        }
        fn read_block(&self, _: BlockId) -> Vec<f32> {
            Vec::new()
        }
        fn write_block(&mut self, _: BlockId, _: &[f32]) {}
    }

    const PROMPT: [TokenId; 4] = [1, 2, 3, 4];
    const END: TokenId = 4002;

    fn tokenizer() -> Tokenizer {
        let json = include_bytes!("../../../models/kipp-tiny/tokenizer.json");
        Tokenizer::from_json(json).unwrap().with_rows(4096).unwrap()
    }

    /// The completion, what went out piece by piece, and every token that was evaluated.
    fn complete(script: &[TokenId], max_tokens: usize, stops: &[&str]) -> (Completion, String, Vec<TokenId>) {
        let artifact = kipp::artifact::Artifact::open("../../models/kipp-tiny").unwrap();
        let evaluated: Arc<Mutex<Vec<TokenId>>> = Arc::default();
        let model = Scripted {
            spec: artifact.spec().clone(),
            prompt: PROMPT.len(),
            script: script.to_vec(),
            evaluated: Arc::clone(&evaluated),
            answers: Vec::new(),
        };
        let options = EngineOptions {
            end_tokens: vec![END],
            tokenizer: Some(tokenizer()),
            step_tokens: 3,
            ..EngineOptions::new(128)
        };
        let engine = Engine::open(Box::new(model), Box::new(SystemClock::default()), options).unwrap();
        let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
        let request = Request { stops, ..Request::new(PROMPT.to_vec(), max_tokens) };
        let mut streamed = String::new();
        let completion = generate(engine, &Interrupt::default(), request, &mut |piece| {
            streamed += piece.text;
            Ok(())
        });
        let evaluated = evaluated.lock().unwrap().clone();
        (completion.unwrap().0, streamed, evaluated)
    }

    #[test]
    fn the_prompt_is_evaluated_once_and_then_one_token_a_step() {
        let script = tokenizer().encode("One day, a little boy");
        let (completion, streamed, evaluated) = complete(&script, script.len(), &[]);
        assert_eq!(completion.tokens, script);
        assert_eq!(
            (completion.text.as_str(), completion.finish_reason),
            ("One day, a little boy", FinishReason::Length)
        );
        assert_eq!(streamed, completion.text);
        // The last token needs no evaluation.
        assert_eq!(evaluated, [&PROMPT[..], &script[..script.len() - 1]].concat());
        assert_eq!(completion.measured.prefill_tokens, 4);
        assert_eq!(completion.measured.decode_tokens, script.len() - 1);
    }

    #[test]
    fn an_end_token_ends_and_is_not_part_of_the_completion() {
        let mut script = tokenizer().encode("One day");
        script.extend([END, 5]);
        let (completion, ..) = complete(&script, 64, &[]);
        assert_eq!((completion.text.as_str(), completion.finish_reason), ("One day", FinishReason::Stop));
        assert_eq!(completion.tokens, script[..script.len() - 2]);
    }

    #[test]
    fn h06_a_stop_string_over_tokens_is_in_neither_text_nor_stream() {
        let script = tokenizer().encode("One day, a little boy ran.");
        let (completion, streamed, evaluated) = complete(&script, 64, &["tle bo"]);
        assert_eq!(
            (completion.text.as_str(), completion.finish_reason),
            ("One day, a lit", FinishReason::Stop)
        );
        assert_eq!(streamed, "One day, a lit");
        assert!(evaluated.len() < PROMPT.len() + script.len(), "nothing is evaluated after the stop");
        // Ends on length while a stop string may still come: what was held back goes out.
        let boy = script.len() - 3;
        let (completion, streamed, _) = complete(&script[..boy], boy, &["little girl"]);
        assert_eq!(
            (completion.text.as_str(), completion.finish_reason),
            ("One day, a little", FinishReason::Length)
        );
        assert_eq!(streamed, completion.text);
    }

    #[test]
    fn h05_half_a_character_is_never_streamed() {
        let script = tokenizer().encode("a \u{1FAE0} b");
        let (completion, streamed, _) = complete(&script, script.len(), &[]);
        assert_eq!(streamed, "a \u{1FAE0} b");
        assert_eq!(completion.text, streamed);
    }

    #[test]
    fn no_tokens_asked_for_is_a_prefill_and_length() {
        let (completion, streamed, evaluated) = complete(&[7], 0, &[]);
        assert_eq!((completion.text.as_str(), completion.finish_reason), ("", FinishReason::Length));
        assert_eq!((streamed.as_str(), &evaluated[..]), ("", &PROMPT[..]));
        assert!(completion.tokens.is_empty());
    }
}
