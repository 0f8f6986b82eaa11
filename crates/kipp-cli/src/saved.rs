//! `--session` and `--save-session`: a sequence that goes on where a file left off, and one that is kept in a file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use kipp::artifact::Artifact;
use kipp::engine::Engine;
use kipp::kv::KvPool;
use kipp::model::Forward;
use kipp::session::{self, ModelIdentity, SessionFile};
use kipp::tokenizer::Tokenizer;
use kipp::{ModelSpec, TokenId};

use crate::outcome::UsageError;
use crate::output::OutputFile;
use crate::report;

/// Where a sequence comes from and goes to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionArgs {
    /// Go on after the text of a saved session; not with --chat. Of its tokens the last 32 at most are evaluated again. They
    /// count as prompt: what is weakened for having been generated is weakened in the new completion only
    #[arg(long, value_name = "FILE", env = "KIPP_SESSION")]
    session: Option<PathBuf>,
    /// Save prompt and completion as it was shown, and what was there before them, for --session; not with --chat. The file
    /// holds their text
    #[arg(long, value_name = "FILE", env = "KIPP_SAVE_SESSION")]
    save_session: Option<PathBuf>,
}

impl SessionArgs {
    /// Whether there is text before the prompt.
    pub(crate) fn goes_on(&self) -> bool {
        self.session.is_some()
    }

    /// Refuses sessions of a chat: a turn after another needs all messages in one template, and a session has none.
    pub(crate) fn check(&self, chat: bool) -> Result<(), UsageError> {
        let flag = match (&self.session, &self.save_session) {
            (Some(_), _) => "--session",
            (None, Some(_)) => "--save-session",
            (None, None) => return Ok(()),
        };
        match chat {
            true => Err(UsageError::new(
                flag,
                "is for plain text: a chat goes on with all its messages, not with tokens",
            )),
            false => Ok(()),
        }
    }

    /// The file to go on from; read before anything takes long.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Restored>> {
        let Some(path) = &self.session else { return Ok(None) };
        let file = SessionFile::open(path).with_context(|| named("--session", path))?;
        Ok(Some(Restored { path: path.clone(), file }))
    }

    /// The file to be written; begun before anything takes long.
    pub(crate) fn create(&self, artifact: &Artifact, spec: &ModelSpec) -> anyhow::Result<Option<Saving>> {
        let Some(path) = &self.save_session else { return Ok(None) };
        let out = OutputFile::create(path).context("--save-session")?;
        Ok(Some(Saving { path: path.clone(), out, identity: ModelIdentity::new(artifact, spec) }))
    }
}

/// A session from a file.
pub(crate) struct Restored {
    path: PathBuf,
    file: SessionFile,
}

impl Restored {
    /// The tokens before the prompt.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        self.file.tokens()
    }

    /// Says how much of it was evaluated again, `cached_tokens` being found.
    pub(crate) fn tell(tokens: usize, cached_tokens: usize) {
        let again = tokens.saturating_sub(cached_tokens);
        if again > 0 {
            report::note(&format!("session: {again} of its {tokens} tokens were evaluated again"));
        }
    }

    /// A pool of the model that knows the session's blocks.
    pub(crate) fn pool(
        &self,
        forward: &mut dyn Forward,
        artifact: &Artifact,
        spec: &ModelSpec,
    ) -> anyhow::Result<KvPool> {
        let pool = KvPool::new(forward.kv_blocks());
        let identity = ModelIdentity::new(artifact, spec);
        self.file.publish(forward, &pool, &identity).with_context(|| named("--session", &self.path))?;
        Ok(pool)
    }
}

/// A file that a session will be in. Dropped without [`Saving::keep`] it leaves nothing behind.
pub(crate) struct Saving {
    path: PathBuf,
    out: OutputFile,
    identity: ModelIdentity,
}

impl Saving {
    /// Saves the sequence of `tokens`, which the engine has just answered.
    pub(crate) fn keep(mut self, engine: Engine, tokens: &[TokenId]) -> anyhow::Result<()> {
        let (forward, pool) = engine.into_parts();
        session::save(&*forward, &pool, tokens, &self.identity, &mut self.out)
            .with_context(|| named("--save-session", &self.path))?;
        self.out.finish().context("--save-session")
    }
}

fn named(flag: &str, path: &Path) -> String {
    format!("{flag}: {}", path.display())
}

/// The tokens of a completion as far as its `text` was shown. What a stop string took back is no part of them; where that
/// began inside a token, the rest of the text is tokenized anew.
pub(crate) fn shown(tokenizer: &Tokenizer, tokens: &[TokenId], text: &str) -> anyhow::Result<Vec<TokenId>> {
    let mut decoder = tokenizer.stream_decoder(true);
    let (mut decoded, mut kept, mut kept_bytes) = (String::new(), 0, 0);
    for (index, token) in tokens.iter().enumerate() {
        decoded += decoder.push(*token)?;
        if !text.starts_with(&decoded) {
            let rest = text.get(kept_bytes..).unwrap_or_default();
            return Ok([&tokens[..kept], &tokenizer.encode(rest)].concat());
        }
        // A token that ends inside a character is kept together with the ones that complete it.
        if decoder.held_bytes() == 0 {
            (kept, kept_bytes) = (index + 1, decoded.len());
        }
    }
    Ok(tokens.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_where_the_text_that_was_shown_ends() {
        let json = include_bytes!("../../../models/kipp-tiny/tokenizer.json");
        let tokenizer = Tokenizer::from_json(json).unwrap();
        let whole = "One day, a little boy \u{1FAE0} ran.";
        let tokens = tokenizer.encode(whole);
        let text_of = |tokens: &[TokenId]| tokenizer.decode(tokens, true).unwrap();
        assert_eq!(shown(&tokenizer, &tokens, whole).unwrap(), tokens);
        for (end, _) in whole.char_indices() {
            let saved = shown(&tokenizer, &tokens, &whole[..end]).unwrap();
            assert_eq!(text_of(&saved), whole[..end]);
            let common = saved.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            assert!(saved.len() - common <= 8, "{end}: only the cut token is tokenized anew");
        }
        // Half a character that the answer ended in was shown as one that is none.
        let half = &tokens[..tokens.len() - tokenizer.encode(" ran.").len() - 1];
        assert_eq!(shown(&tokenizer, half, &text_of(half)).unwrap(), half);
    }
}
