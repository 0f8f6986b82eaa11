//! `kipp perplexity`: how well a model predicts a text, with the protocol stated beside the number; and how far its
//! predictions lie from another model's.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::artifact::Artifact;
use kipp::model::ModelOptions;
use kipp::perplexity::{Divergence, Mean, Perplexity, Protocol, divergence, perplexity};
use kipp_kernels::Activations;
use serde::Serialize;

use crate::args::{self, BackendArgs, ContextArgs, JsonArg, ModelArg, StepArgs};
use crate::load::{BackendReport, Loaded, ModelReport};
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
    /// Tokens a window, each evaluated from an empty cache; its first token is not scored [default: 512, or the context]
    #[arg(long, value_name = "W", env = "KIPP_WINDOW", value_parser = args::window, allow_hyphen_values = true)]
    window: Option<usize>,
    /// Begin a window every S tokens and score what no window before did [default: windows do not overlap]
    #[arg(long, value_name = "S", env = "KIPP_STRIDE", value_parser = args::stride, allow_hyphen_values = true)]
    #[arg(conflicts_with = "second_half")]
    stride: Option<usize>,
    /// Score only the second half of each whole window, as llama.cpp does
    #[arg(long, env = "KIPP_SECOND_HALF", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    second_half: bool,
    /// Tell how far the predictions lie from this model's, which is loaded beside it
    #[arg(long, value_name = "MODEL", env = "KIPP_AGAINST")]
    against: Option<String>,
    /// Coding of that model's activations [default: as --activations]
    #[arg(long, value_name = "CODING", env = "KIPP_AGAINST_ACTIVATIONS", value_parser = args::value::activations)]
    #[arg(requires = "against")]
    against_activations: Option<Activations>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    stride: Option<usize>,
    tokens: usize,
    protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_token: Option<&'a [f64]>,
    model: ModelReport,
    backend: BackendReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<AgainstReport>,
}

/// How far the predictions lie from another model's.
#[derive(Serialize)]
struct AgainstReport {
    nll: f64,
    ppl: f64,
    nll_difference: f64,
    nll_difference_stderr: f64,
    kl: f64,
    kl_stderr: f64,
    kl_median: f64,
    kl_p99: f64,
    kl_max: f64,
    same_top: f64,
    same_top_stderr: f64,
    model: ModelReport,
    backend: BackendReport,
}

/// The model that another is held against.
struct Reference {
    artifact: Artifact,
    loaded: Loaded,
}

/// What was found.
struct Found {
    perplexity: Perplexity,
    against: Option<Divergence>,
}

/// Scores the file.
pub(crate) fn run(args: &PerplexityArgs) -> anyhow::Result<Outcome> {
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    let ids = ids(args, &artifact)?;
    in_file(&args.file, input::check_ids(&ids, spec.vocab_size))?;
    let context = load::context_limit(&artifact, &spec, &args.context)?;
    let protocol = protocol(args, context.tokens)?;
    let room = args.step.options(args.context.attention.kv, protocol.window().min(ids.len().max(1)));
    let mut loaded = load::forward(&artifact, spec, &args.backend, room)?;
    let mut reference =
        args.against.as_ref().map(|name| reference(name, args, protocol.window(), room)).transpose()?;
    let found = in_file(&args.file, score(&mut loaded, reference.as_mut(), &ids, protocol))?;
    if args.json.json {
        let against = found.against.as_ref().zip(reference.as_ref());
        report::json(&PerplexityReport {
            tokens_scored: found.perplexity.per_token.len(),
            nll: found.perplexity.nll.value,
            ppl: found.perplexity.ppl,
            stderr: found.perplexity.nll.stderr,
            window: protocol.window(),
            stride: args.stride,
            tokens: found.perplexity.tokens,
            protocol: protocol.to_string(),
            per_token: args.per_token.then_some(&found.perplexity.per_token),
            model: ModelReport::new(&artifact),
            backend: BackendReport::new(&*loaded.forward),
            against: against.map(|(divergence, reference)| AgainstReport::new(divergence, reference)),
        })?;
    } else {
        report::text(&plain(&found, args.per_token))?;
    }
    Ok(Outcome::Done)
}

/// What the flags ask for, held against the context.
fn protocol(args: &PerplexityArgs, context_tokens: usize) -> Result<Protocol, UsageError> {
    let window = args.window.unwrap_or(DEFAULT_WINDOW.min(context_tokens));
    if window > context_tokens {
        let reason = format!("{window} tokens do not fit the context of {context_tokens}");
        return Err(UsageError::new("--window", reason));
    }
    match args.stride {
        Some(stride) if stride >= window => {
            let reason = format!("{stride} tokens do not overlap windows of {window}");
            Err(UsageError::new("--stride", reason))
        }
        Some(stride) => Ok(Protocol::Stride { window, stride }),
        None if args.second_half => Ok(Protocol::SecondHalf { window }),
        None => Ok(Protocol::Windows { window }),
    }
}

/// Loads the other model; windows that it has no positions for are refused.
fn reference(
    name: &str,
    args: &PerplexityArgs,
    window: usize,
    room: ModelOptions,
) -> anyhow::Result<Reference> {
    let open = || -> anyhow::Result<Reference> {
        let artifact = open::artifact(name)?;
        let spec = load::spec(&artifact, &args.context.attention)?;
        if spec.context() < window {
            bail!("{name} has {} positions, a window {window}", spec.context());
        }
        let activations = args.against_activations.or(args.backend.activations);
        let backend = BackendArgs { activations, ..args.backend.clone() };
        Ok(Reference { loaded: load::forward(&artifact, spec, &backend, room)?, artifact })
    };
    open().context("--against")
}

fn score(
    loaded: &mut Loaded,
    reference: Option<&mut Reference>,
    ids: &[TokenId],
    protocol: Protocol,
) -> anyhow::Result<Found> {
    let mut bar = Progress::new("scoring {bar:30} {pos}/{len} tokens {eta}");
    let mut progress = |done| bar.update(done as u64, ids.len() as u64);
    let model = &mut *loaded.forward;
    let found = match reference {
        None => perplexity(model, &loaded.pool, ids, protocol, &mut progress)
            .map(|perplexity| Found { perplexity, against: None }),
        Some(Reference { loaded: Loaded { forward, pool }, .. }) => {
            divergence((model, &loaded.pool), (&mut **forward, pool), ids, protocol, &mut progress)
                .map(|found| Found { perplexity: found.perplexity.clone(), against: Some(found) })
        }
    };
    bar.finish();
    Ok(found?)
}

impl AgainstReport {
    fn new(divergence: &Divergence, reference: &Reference) -> AgainstReport {
        AgainstReport {
            nll: divergence.reference.nll.value,
            ppl: divergence.reference.ppl,
            nll_difference: divergence.nll_difference.value,
            nll_difference_stderr: divergence.nll_difference.stderr,
            kl: divergence.kl.value,
            kl_stderr: divergence.kl.stderr,
            kl_median: divergence.kl_median,
            kl_p99: divergence.kl_p99,
            kl_max: divergence.kl_max,
            same_top: divergence.same_top.value,
            same_top_stderr: divergence.same_top.stderr,
            model: ModelReport::new(&reference.artifact),
            backend: BackendReport::new(&*reference.loaded.forward),
        }
    }
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

fn plain(found: &Found, per_token: bool) -> String {
    let Perplexity { nll, ppl, protocol, tokens, per_token: scored } = &found.perplexity;
    let mut out = String::new();
    if per_token {
        for value in scored {
            out += &format!("{value}\n");
        }
    }
    out += &format!(
        "perplexity {ppl:.6} (negative log-likelihood {} a token)\n\
         {} of {tokens} tokens scored, windows of {}: {protocol}\n",
        mean(*nll),
        scored.len(),
        protocol.window()
    );
    if let Some(against) = &found.against {
        out += &format!(
            "against: perplexity {:.6}, negative log-likelihood {} less there\n\
             divergence {}, median {:.3e}, 99 % below {:.3e}, largest {:.3e}\n\
             the same token is most likely in {:.3} +- {:.3} % of the positions\n",
            against.reference.ppl,
            mean(against.nll_difference),
            mean(against.kl),
            against.kl_median,
            against.kl_p99,
            against.kl_max,
            against.same_top.value * 100.0,
            against.same_top.stderr * 100.0
        );
    }
    out
}

fn mean(mean: Mean) -> String {
    format!("{:.6} +- {:.6}", mean.value, mean.stderr)
}
