//! `kipp chat`: a conversation of many turns. In a terminal with a line editor; elsewhere line by line, for scripts.
//!
//! `turn` is one question and its answer, `evaluator` the engine over the turns, `reuse` what of a prompt it has evaluated
//! already. `command` and `execute` are the lines that begin with a slash.

mod answer;
mod command;
mod editor;
mod evaluator;
mod execute;
mod file;
mod history;
mod lines;
mod open;
mod reuse;
mod settings;
mod terminal;
mod turn;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::chat::{ChatFormat, Conversation};
use kipp::engine::Marks;
use kipp::tokenizer::Tokenizer;

use crate::args::{self, BackendArgs, ContextArgs, JsonArg, ModelArg, PoolArgs, SamplingArgs, StepArgs};
use crate::outcome::Outcome;
use crate::speculation::SpecArgs;

use evaluator::Evaluator;
use reuse::Reuse;
use settings::Settings;
use turn::Answered;

/// Flags of `kipp chat`.
#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Print one JSON document for each answer, on a line of its own; input is then taken line by line
    #[command(flatten)]
    json: JsonArg,
    /// System message
    #[arg(long, value_name = "TEXT", env = "KIPP_SYSTEM")]
    system: Option<String>,
    /// Ask the template for answers without thinking
    #[arg(long, env = "KIPP_NO_THINK", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    no_think: bool,
    /// Tokens of an answer at most [default: what the context holds]
    #[arg(short = 'n', long, value_name = "N", env = "KIPP_MAX_TOKENS", value_parser = args::max_tokens, allow_hyphen_values = true)]
    max_tokens: Option<usize>,
    /// Go on past end tokens
    #[arg(long, env = "KIPP_IGNORE_EOS", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    ignore_eos: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculation: SpecArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
    #[command(flatten)]
    pool: PoolArgs,
}

/// The model, and the conversation with it.
struct Chat {
    /// The model's name.
    name: String,
    format: ChatFormat,
    tokenizer: Tokenizer,
    marks: Marks,
    end_tokens: Vec<TokenId>,
    /// Positions of a prompt and its answer.
    context_tokens: usize,
    load_time: Duration,
    evaluator: Evaluator,
    reuse: Reuse,
    conversation: Conversation,
    settings: Settings,
    /// Answers so far, those that were taken back included.
    n_answers: u64,
    last: Option<Answered>,
}

/// Talks.
pub(crate) fn run(args: &ChatArgs) -> anyhow::Result<Outcome> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let chat = Chat::open(args)?;
    match is_terminal && !args.json.json {
        true => terminal::talk(chat),
        false => lines::answer_all(chat, args.json.json),
    }
}
