//! One completion: session, sampler, stream decoder and stop strings, from a prompt's ids to text. The prompt is
//! evaluated once, then one token a step; nothing is evaluated twice. It knows no flags and prints nothing.

use std::time::{Duration, Instant};

use kipp::TokenId;
use kipp::engine::StopFilter;
use kipp::sampling::Sampler;
use kipp::session::Session;
use kipp::tokenizer::StreamDecoder;
use serde::Serialize;

use crate::interrupt;
use crate::timings::Measured;

/// When a completion ends.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Tokens of the completion.
    pub(crate) max_tokens: usize,
    /// Tokens that end it; empty to ignore them.
    pub(crate) end_tokens: Vec<TokenId>,
    /// Texts that end it.
    pub(crate) stops: Vec<String>,
    /// Prompt tokens between two looks at Ctrl-C.
    pub(crate) step_tokens: usize,
}

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

/// Takes text as soon as nothing can take it back.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&str) -> anyhow::Result<()>;

/// Completes `prompt`, which must leave room for `limits.max_tokens` in the session's cache.
pub(crate) fn generate(
    session: &mut Session<'_>,
    prompt: &[TokenId],
    sampler: &mut Sampler,
    decoder: StreamDecoder,
    limits: Limits,
    sink: Sink<'_>,
) -> anyhow::Result<Completion> {
    let filter = StopFilter::new(limits.stops);
    let mut text = Text { decoder, filter, text: String::new(), stopped: false, sink };
    let mut measured = Measured::default();
    let mut tokens = Vec::new();

    let before = session.len();
    let started = Instant::now();
    let mut next = prefill(session, prompt, sampler, limits.max_tokens > 0, limits.step_tokens)?;
    measured.prefill = started.elapsed();
    // Interrupted, it evaluated less than the prompt.
    measured.prefill_tokens = session.len() - before;
    let finish_reason = loop {
        let id = match next {
            Next::Token(id) => id,
            Next::None => break FinishReason::Length,
            Next::Interrupted => break FinishReason::Interrupted,
        };
        if limits.end_tokens.contains(&id) {
            break FinishReason::Stop;
        }
        sampler.accept(id);
        tokens.push(id);
        if text.push(id)? {
            break FinishReason::Stop;
        }
        if tokens.len() >= limits.max_tokens {
            break FinishReason::Length;
        }
        if interrupt::requested() {
            break FinishReason::Interrupted;
        }
        let (sampled, time) = decode(session, id, sampler)?;
        measured.decode += time;
        measured.decode_steps += 1;
        next = Next::Token(sampled);
    };
    let text = text.finish()?;
    Ok(Completion { tokens, text, finish_reason, measured })
}

/// What follows the prompt.
enum Next {
    Token(TokenId),
    /// No token was asked for.
    None,
    Interrupted,
}

fn prefill(
    session: &mut Session<'_>,
    prompt: &[TokenId],
    sampler: &mut Sampler,
    sample: bool,
    step_tokens: usize,
) -> anyhow::Result<Next> {
    let mut steps = prompt.chunks(step_tokens.max(1)).peekable();
    while let Some(step) = steps.next() {
        let logits = session.append(step)?;
        if interrupt::requested() {
            return Ok(Next::Interrupted);
        }
        if steps.peek().is_none() && sample {
            return Ok(Next::Token(sampler.sample(logits)?.id));
        }
    }
    Ok(Next::None)
}

fn decode(
    session: &mut Session<'_>,
    id: TokenId,
    sampler: &mut Sampler,
) -> anyhow::Result<(TokenId, Duration)> {
    let started = Instant::now();
    let logits = session.append(&[id])?;
    let id = sampler.sample(logits)?.id;
    Ok((id, started.elapsed()))
}

/// The text side: ids in, released text out.
struct Text<'a> {
    decoder: StreamDecoder,
    filter: StopFilter,
    text: String,
    /// A stop string is complete: nothing may follow.
    stopped: bool,
    sink: Sink<'a>,
}

impl Text<'_> {
    /// Takes a token; true when a stop string is complete.
    fn push(&mut self, id: TokenId) -> anyhow::Result<bool> {
        let piece = self.decoder.push(id)?.to_owned();
        self.take(&piece)?;
        Ok(self.stopped)
    }

    /// Lets out what is held back, unless a stop string ended the text, and returns all of it.
    fn finish(mut self) -> anyhow::Result<String> {
        if !self.stopped {
            let rest = self.decoder.finish().to_owned();
            self.take(&rest)?;
        }
        if !self.stopped {
            let held = self.filter.finish();
            self.emit(&held)?;
        }
        Ok(self.text)
    }

    fn take(&mut self, piece: &str) -> anyhow::Result<()> {
        let released = self.filter.push(piece);
        self.stopped = released.stopped;
        self.emit(&released.text)
    }

    fn emit(&mut self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.text += text;
            (self.sink)(text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kipp::ModelSpec;
    use kipp::backend::{BackendError, BackendInfo};
    use kipp::batch::{Answer, Batch, Outputs};
    use kipp::kv::{BlockId, KvPool, KvScheme};
    use kipp::model::Forward;
    use kipp::sampling::SamplingParams;
    use kipp::tokenizer::Tokenizer;

    use super::*;

    /// Says `script[n]` after `prompt` tokens and n more, and remembers what it was asked to evaluate.
    struct Scripted {
        spec: ModelSpec,
        prompt: usize,
        script: Vec<TokenId>,
        evaluated: Vec<TokenId>,
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
            self.evaluated.extend(&batch.tokens);
            let said = (self.evaluated.len() + 1).saturating_sub(self.prompt + 1);
            let mut logits = vec![0.0; self.spec.vocab_size];
            if let Some(id) = self.script.get(said) {
                logits[*id as usize] = 1.0;
            }
            self.answers = vec![(batch.tokens.len() - 1, Answer::Logits(logits))];
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
        let mut model = Scripted {
            spec: artifact.spec().clone(),
            prompt: PROMPT.len(),
            script: script.to_vec(),
            evaluated: Vec::new(),
            answers: Vec::new(),
        };
        let pool = KvPool::new(model.kv_blocks());
        let mut session = Session::new(&mut model, &pool);
        let mut sampler = Sampler::new(SamplingParams::greedy(), 0, 0, &PROMPT);
        let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
        let limits = Limits { max_tokens, end_tokens: vec![END], stops, step_tokens: 3 };
        let mut streamed = String::new();
        let decoder = tokenizer().stream_decoder(true);
        let completion = generate(&mut session, &PROMPT, &mut sampler, decoder, limits, &mut |text| {
            streamed += text;
            Ok(())
        });
        drop(session);
        (completion.unwrap(), streamed, model.evaluated)
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
        assert_eq!(completion.measured.decode_steps, script.len() - 1);
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
