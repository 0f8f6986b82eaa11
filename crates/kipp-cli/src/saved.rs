//! `--session` and `--save-session`: a sequence that goes on where a file left off, and one that is kept in a file.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kipp::artifact::Artifact;
use kipp::engine::Engine;
use kipp::kv::KvPool;
use kipp::model::Forward;
use kipp::session::{self, ModelIdentity, SessionFile};
use kipp::{ModelSpec, TokenId};

use crate::outcome::UsageError;
use crate::output::OutputFile;

/// Where a sequence comes from and goes to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionArgs {
    /// Go on after the text of a saved session, which is not evaluated again; not with --chat
    #[arg(long, value_name = "FILE", env = "KIPP_RUN_SESSION")]
    session: Option<PathBuf>,
    /// Save prompt and completion, and what was there before them, for --session. The file holds their text
    #[arg(long, value_name = "FILE", env = "KIPP_SAVE_SESSION")]
    save_session: Option<PathBuf>,
}

impl SessionArgs {
    /// Whether there is text before the prompt.
    pub(crate) fn goes_on(&self) -> bool {
        self.session.is_some()
    }

    /// The file to go on from; read before anything takes long.
    pub(crate) fn open(&self, chat: bool) -> anyhow::Result<Option<Restored>> {
        let Some(path) = &self.session else { return Ok(None) };
        if chat {
            let reason = "goes on with plain text: a turn after another needs both messages in one template";
            return Err(UsageError::new("--session", reason).into());
        }
        let file = SessionFile::open(path).with_context(|| path.display().to_string())?;
        Ok(Some(Restored { path: path.clone(), file }))
    }

    /// The file to be written; begun before anything takes long.
    pub(crate) fn create(&self, artifact: &Artifact, spec: &ModelSpec) -> anyhow::Result<Option<Saving>> {
        let Some(path) = &self.save_session else { return Ok(None) };
        let out = OutputFile::create(path)?;
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

    /// A pool of the model that knows the session's blocks.
    pub(crate) fn pool(
        &self,
        forward: &mut dyn Forward,
        artifact: &Artifact,
        spec: &ModelSpec,
    ) -> anyhow::Result<KvPool> {
        let pool = KvPool::new(forward.kv_blocks());
        let identity = ModelIdentity::new(artifact, spec);
        self.file.publish(forward, &pool, &identity).with_context(|| self.path.display().to_string())?;
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
            .with_context(|| self.path.display().to_string())?;
        self.out.finish()
    }
}
