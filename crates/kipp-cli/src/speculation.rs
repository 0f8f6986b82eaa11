//! `--spec` and `--draft-model`: who proposes tokens ahead of the model, from flags to something that drafts.

use std::sync::Arc;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kipp::engine::{NewDrafter, Speculation};
use kipp::model::ModelOptions;
use kipp::speculate::{DraftModel, Drafter, MAX_DRAFT_TOKENS, NgramDrafter};
use kipp::tokenizer::Tokenizer;

use crate::args::{BackendArgs, PoolArgs, value};
use crate::outcome::UsageError;
use crate::{load, open, report};

/// What `--spec` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecKind {
    /// Nobody: one token a step
    Off,
    /// The text itself: what followed the last tokens before
    Ngram,
    /// A smaller model
    Draft,
}

/// Who drafts. Each command has its own default.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpecArgs {
    /// Who proposes tokens ahead of the model. Changes no answer, only how soon it is there
    #[arg(long, value_enum, value_name = "KIND", env = "KIPP_SPEC")]
    spec: Option<SpecKind>,
    /// The model that proposes, with --spec draft; its tokenizer must be the model's
    #[arg(long, value_name = "MODEL", env = "KIPP_DRAFT_MODEL")]
    draft_model: Option<String>,
    /// MiB of the draft model's keys and values [default: what one sequence needs]
    #[arg(long, value_name = "N", env = "KIPP_DRAFT_KV_MIB", value_parser = value::kv_mib, allow_hyphen_values = true)]
    draft_kv_mib: Option<usize>,
}

/// Flags that go together: who drafts, and the draft model's name where one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) kind: SpecKind,
    pub(crate) draft_model: Option<String>,
}

impl SpecArgs {
    /// Checks that the flags go together; `default` is what the command does where none is given.
    pub(crate) fn choice(&self, default: SpecKind) -> Result<Choice, UsageError> {
        let kind = self.spec.unwrap_or(default);
        // A variable that is set to nothing names none.
        let draft_model = self.draft_model.as_ref().filter(|name| !name.is_empty());
        match (kind, draft_model) {
            (SpecKind::Draft, None) => Err(UsageError::new("--spec", "draft needs --draft-model")),
            (SpecKind::Off | SpecKind::Ngram, Some(_)) => {
                Err(UsageError::new("--draft-model", "counts only with --spec draft"))
            }
            (SpecKind::Off | SpecKind::Ngram, None) if self.draft_kv_mib.is_some() => {
                Err(UsageError::new("--draft-kv-mib", "counts only with --spec draft"))
            }
            (_, draft_model) => Ok(Choice { kind, draft_model: draft_model.cloned() }),
        }
    }
}

/// What a drafter must fit.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The tokenizer that a draft model must share.
    pub(crate) tokenizer: &'a Tokenizer,
    /// As the target's: steps, and how keys and values are kept.
    pub(crate) options: ModelOptions,
    /// Positions of a sequence.
    pub(crate) context_tokens: usize,
}

/// Those who draft for the sequences of one engine.
pub(crate) struct Drafters {
    /// Makes one for each choice.
    pub(crate) new: NewDrafter,
    model: Option<DraftModel>,
}

impl Drafters {
    /// Loads what the flags name; `None` where nobody is to draft.
    pub(crate) fn open(
        args: &SpecArgs,
        choice: &Choice,
        backend: &BackendArgs,
        target: Target<'_>,
    ) -> anyhow::Result<Option<Drafters>> {
        let Some(name) = &choice.draft_model else {
            let ngram = || -> NewDrafter { Arc::new(|_| Box::new(NgramDrafter::new()) as Box<dyn Drafter>) };
            return Ok((choice.kind == SpecKind::Ngram).then(|| Drafters { new: ngram(), model: None }));
        };
        let model = draft_model(name, args, backend, target).context("--draft-model")?;
        let drafter = model.clone();
        let new: NewDrafter = Arc::new(move |_| Box::new(drafter.drafter()) as Box<dyn Drafter>);
        Ok(Some(Drafters { new, model: Some(model) }))
    }

    /// Drafts as long as they pay.
    pub(crate) fn where_paying(&self) -> Speculation {
        Speculation::WherePaying(Arc::clone(&self.new), MAX_DRAFT_TOKENS)
    }

    /// Why the draft model gave up, if it did; answers are the same without it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.model.as_ref().and_then(DraftModel::failure)
    }

    /// The completion is the same without drafts, and whoever waits for it should know why it took longer.
    pub(crate) fn tell_failure(&self) {
        if let Some(failure) = self.failure() {
            report::note(&format!("note: the draft model failed, and nothing was drafted since: {failure}"));
        }
    }
}

fn draft_model(
    name: &str,
    args: &SpecArgs,
    backend: &BackendArgs,
    target: Target<'_>,
) -> anyhow::Result<DraftModel> {
    let artifact = open::artifact(name)?;
    let spec = artifact.spec().clone();
    let tokenizer = open::tokenizer(artifact.tokenizer_files())?.with_rows(spec.vocab_size)?;
    let context_tokens = target.context_tokens.min(spec.context());
    let kv_blocks = PoolArgs { kv_mib: args.draft_kv_mib }.held_blocks(&spec, target.options.kv);
    let kv_blocks =
        kv_blocks.unwrap_or(ModelOptions::for_one_sequence(target.options.kv, context_tokens, 1).kv_blocks);
    report::note(&format!("draft model: {}", artifact.id()));
    let options = ModelOptions { kv_blocks, ..target.options };
    let forward = load::forward(&artifact, spec, backend, options)?.forward;
    Ok(DraftModel::new(forward, context_tokens, &tokenizer, target.tokenizer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let args = |spec, draft_model: Option<&str>, draft_kv_mib| SpecArgs {
            spec,
            draft_model: draft_model.map(str::to_owned),
            draft_kv_mib,
        };
        let choice = |args: SpecArgs| args.choice(SpecKind::Off);
        assert_eq!(choice(args(None, None, None)).unwrap().kind, SpecKind::Off);
        assert_eq!(choice(args(Some(SpecKind::Ngram), None, None)).unwrap().kind, SpecKind::Ngram);
        assert!(choice(args(Some(SpecKind::Draft), Some("m"), Some(1))).is_ok());
        assert_eq!(choice(args(None, Some(""), None)).unwrap().draft_model, None);
        let refused = |args| choice(args).unwrap_err().to_string();
        assert!(refused(args(Some(SpecKind::Draft), None, None)).starts_with("--spec: draft needs"));
        assert!(refused(args(None, Some("m"), None)).starts_with("--draft-model: "));
        assert!(refused(args(Some(SpecKind::Ngram), Some("m"), None)).starts_with("--draft-model: "));
        assert!(refused(args(None, None, Some(3))).starts_with("--draft-kv-mib: "));
    }
}
