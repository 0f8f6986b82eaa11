//! `kipp perplexity`: how well a model predicts a text, with the protocol stated beside the number.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::artifact::Artifact;
use kipp::perplexity::{Perplexity, perplexity};
use serde::Serialize;

use crate::args::{self, BackendArgs, ContextArgs, JsonArg, ModelArg, StepArgs};
use crate::load::{BackendReport, ModelReport};
use crate::outcome::{Outcome, UsageError};
use crate::progress::Progress;
use crate::{input, load, open, report};

/// Tokens a window where nobody says: what other engines take, so that numbers can be compared.
const DEFAULT_WINDOW: usize = 512;

/// Flags of `kipp perplexity`.
#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    /// A text, or with --ids token ids as little-endian u32. Control tokens in a text are text like any other
    file: PathBuf,
    /// FILE holds token ids as little-endian u32; no tokenizer is needed then. KIPP_IDS is the file of `kipp logits`
    #[arg(long, env = "KIPP_PERPLEXITY_IDS", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    ids: bool,
    /// Tokens a window; windows do not overlap, and each one's first token is not scored [default: 512, or the context]
    #[arg(long, value_name = "W", env = "KIPP_WINDOW", value_parser = args::window, allow_hyphen_values = true)]
    window: Option<usize>,
    /// Print the negative log-likelihood of every scored token too
    #[arg(long, env = "KIPP_PER_TOKEN", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    per_token: bool,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
}

#[derive(Serialize)]
struct PerplexityReport<'a> {
    tokens_scored: usize,
    nll: f64,
    ppl: f64,
    stderr: f64,
    window: usize,
    tokens: usize,
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_token: Option<&'a [f64]>,
    model: ModelReport,
    backend: BackendReport,
}

/// Scores the file.
pub(crate) fn run(args: &PerplexityArgs) -> anyhow::Result<Outcome> {
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    let ids = ids(args, &artifact)?;
    in_file(&args.file, input::check_ids(&ids, spec.vocab_size))?;
    let context = load::context_limit(&artifact, &spec, &args.context)?;
    let window = match args.window {
        Some(window) if window > context.tokens => {
            let reason = format!("{window} tokens do not fit the context of {}", context.tokens);
            return Err(UsageError::new("--window", reason).into());
        }
        Some(window) => window,
        None => DEFAULT_WINDOW.min(context.tokens),
    };
    let room = args.step.options(args.context.attention.kv, window.min(ids.len().max(1)));
    let mut loaded = load::forward(&artifact, spec, &args.backend, room)?;
    let mut progress = Progress::new("scoring {bar:30} {pos}/{len} tokens {eta}");
    let result = perplexity(&mut *loaded.forward, &loaded.pool, &ids, window, &mut |done| {
        progress.update(done as u64, ids.len() as u64);
    });
    progress.finish();
    let result = in_file(&args.file, result.map_err(anyhow::Error::from))?;
    if args.json.json {
        report::json(&PerplexityReport {
            tokens_scored: result.tokens_scored,
            nll: result.nll,
            ppl: result.ppl,
            stderr: result.stderr,
            window: result.window,
            tokens: result.tokens,
            protocol: result.protocol,
            per_token: args.per_token.then_some(&result.per_token),
            model: ModelReport::new(&artifact),
            backend: BackendReport::new(&*loaded.forward),
        })?;
    } else {
        report::text(&plain(&result, args.per_token))?;
    }
    Ok(Outcome::Done)
}

fn ids(args: &PerplexityArgs, artifact: &Artifact) -> anyhow::Result<Vec<TokenId>> {
    let ids = if args.ids {
        input::u32_file(&args.file)?
    } else {
        open::tokenizer(artifact.tokenizer_files())?.encode(&input::text_file(&args.file)?)
    };
    if ids.len() < 2 {
        bail!("{}: {} tokens leave nothing to score", args.file.display(), ids.len());
    }
    Ok(ids)
}

fn in_file<T>(path: &Path, result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.with_context(|| path.display().to_string())
}

fn plain(result: &Perplexity, per_token: bool) -> String {
    let Perplexity { nll, ppl, stderr, window, tokens_scored, tokens, protocol, .. } = result;
    let mut out = String::new();
    if per_token {
        for value in &result.per_token {
            out += &format!("{value}\n");
        }
    }
    out + &format!(
        "perplexity {ppl:.6} (negative log-likelihood {nll:.6} +- {stderr:.6} a token)\n\
         {tokens_scored} of {tokens} tokens scored, windows of {window}: {protocol}\n"
    )
}
