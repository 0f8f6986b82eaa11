//! The fake model alone, in plain loops: what a request must be answered, whoever else is served.

use std::sync::LazyLock;

use kipp::engine::{FinishReason, Request, TokenScore};
use kipp::sampling::{AllowedTokens, Sampler, TokenLogProb, log_prob, top_logprobs};
use kipp::tokenizer::Tokenizer;
use kipp::{ModelSpec, TokenId, artifact::Artifact};

/// Ids of the fake model; those of kipp-tiny's tokenizer spell one character each.
pub(super) const VOCAB: usize = 40;
/// Ends an answer.
pub(super) const END: TokenId = 7;

pub(super) const START: u64 = 0x9E37_79B9_7F4A_7C15;

/// kipp-tiny's own.
pub(super) fn tokenizer() -> Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let json = include_bytes!("../../../../../models/kipp-tiny/tokenizer.json");
        Tokenizer::from_json(json).unwrap()
    });
    TOKENIZER.clone()
}

pub(super) fn spec() -> ModelSpec {
    static SPEC: LazyLock<ModelSpec> = LazyLock::new(|| {
        Artifact::open(crate::paths::repository("models/kipp-tiny")).unwrap().spec().clone()
    });
    SPEC.clone()
}

/// A history and one more token.
pub(super) fn after(state: u64, token: TokenId) -> u64 {
    mix(state ^ (u64::from(token) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The logits after a history: a few ids stand out, so that texts repeat and draws differ.
pub(super) fn logits(state: u64) -> Vec<f32> {
    let logit = |id: u64| {
        let noise = (mix(state.wrapping_add(id)) >> 44) as f32 / 65_536.0;
        // The end token is as likely as any other.
        if mix(state ^ id).is_multiple_of(5) { noise + 3.0 } else { noise / 4.0 }
    };
    (0..VOCAB as u64).map(logit).collect()
}

/// What a choice must be answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Solo {
    pub(super) tokens: Vec<TokenId>,
    pub(super) text: String,
    pub(super) scores: Vec<TokenScore>,
    pub(super) finish: Option<FinishReason>,
}

fn score(logits: &[f32], id: TokenId, top: usize) -> TokenScore {
    TokenScore { token: TokenLogProb { id, log_prob: log_prob(logits, id) }, top: top_logprobs(logits, top) }
}

/// What the prompt of a request is scored.
pub(super) fn prompt_scores(request: &Request) -> Option<Vec<TokenScore>> {
    let top = request.prompt_logprobs?;
    let mut state = START;
    let pairs = request.prompt.windows(2).map(|two| {
        state = after(state, two[0]);
        score(&logits(state), two[1], top)
    });
    Some(pairs.collect())
}

/// Answers a choice of a request alone.
pub(super) fn solo(request: &Request, choice: u32, context_tokens: usize) -> Solo {
    let mut state = request.prompt.iter().fold(START, |state, token| after(state, *token));
    let mut sampler = Sampler::new(request.sampling.clone(), request.seed, choice, &request.prompt);
    let max_tokens = request.max_tokens.min(context_tokens - request.prompt.len());
    let mut ends = request.stop_tokens.clone();
    if !request.ignore_eos || request.constraint.is_some() {
        ends.push(END);
    }
    let mut constraint = request.constraint.clone();
    let mut solo = Solo::default();
    let mut thinking = request.thinking.filter(|thinking| thinking.begun).map(|_| 0);
    // The content's text, and where in `tokens` it begins.
    let mut content_from = 0;
    while solo.finish.is_none() {
        if solo.tokens.len() == max_tokens {
            solo.finish = Some(FinishReason::Length);
            break;
        }
        let raw = logits(state);
        let mut changed = raw.clone();
        let allowed = constraint.as_mut().map(|constraint| constraint.allowed().unwrap().0.to_vec());
        let may_go_on = allowed.as_ref().is_none_or(|words| !ids(words).all(|id| ends.contains(&id)));
        if solo.tokens.len() < request.min_tokens && may_go_on {
            ends.iter().for_each(|end| changed[*end as usize] = f32::NEG_INFINITY);
        }
        let allowed = allowed.as_deref().map(AllowedTokens);
        let mut id = sampler.sample_allowed(&mut changed, allowed).unwrap().id;
        if let (Some(spent), Some(rules)) = (thinking, request.thinking)
            && rules.budget_tokens.is_some_and(|budget| spent >= budget)
        {
            id = rules.close;
        }
        if ends.contains(&id) {
            solo.finish = Some(FinishReason::Stop);
            break;
        }
        sampler.accept(id);
        constraint.iter_mut().for_each(|constraint| constraint.accept(id).unwrap());
        state = after(state, id);
        solo.tokens.push(id);
        solo.scores.extend(request.logprobs.map(|top| score(&raw, id, top)));
        match (thinking, request.thinking) {
            (None, Some(rules)) if solo.tokens.len() == 1 && id == rules.open && !rules.begun => {
                thinking = Some(0);
            }
            (Some(_), Some(rules)) if id == rules.close => {
                thinking = None;
                content_from = solo.tokens.len();
            }
            (Some(spent), _) => thinking = Some(spent + 1),
            _ => {}
        }
        if thinking.is_none() && stopped(&request.stops, &solo.tokens[content_from..]).is_some() {
            solo.finish = Some(FinishReason::Stop);
        }
    }
    solo.text = text(&solo.tokens);
    if thinking.is_none()
        && let Some(content) = stopped(&request.stops, &solo.tokens[content_from..])
    {
        solo.text = text(&solo.tokens[..content_from]) + &content;
    }
    solo
}

/// The tokens of a mask.
fn ids(words: &[u32]) -> impl Iterator<Item = TokenId> {
    (0..32 * words.len() as TokenId).filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
}

fn text(tokens: &[TokenId]) -> String {
    tokenizer().decode(tokens, true).unwrap()
}

/// The text before the stop string that ends first, the longer one on a tie.
fn stopped(stops: &[String], tokens: &[TokenId]) -> Option<String> {
    let text = text(tokens);
    let first = |stop: &String| text.find(stop.as_str()).map(|at| (at + stop.len(), at));
    let (_, at) = stops.iter().filter_map(first).min()?;
    Some(text[..at].to_owned())
}
