//! `--session` and `--save-session`: a sequence that goes on where a file left off, and one that is kept in a file.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kipp::artifact::Artifact;
use kipp::session::{ModelIdentity, Session, SessionFile};
use kipp::{ModelSpec, TokenId};

use crate::load::Loaded;
use crate::outcome::UsageError;
use crate::output::OutputFile;

/// Where a sequence comes from and goes to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionArgs {
    /// Go on after the text of a saved session, which is not evaluated again; not with --chat
    #[arg(long, value_name = "FILE", env = "KIPP_SESSION")]
    session: Option<PathBuf>,
    /// Save prompt and completion, and what was there before them, for --session. The file holds their text
    #[arg(long, value_name = "FILE", env = "KIPP_SAVE_SESSION")]
    save_session: Option<PathBuf>,
}

/// The files of one run.
pub(crate) struct Saved {
    args: SessionArgs,
    before: Option<SessionFile>,
    after: Option<OutputFile>,
    identity: ModelIdentity,
}

impl Saved {
    /// Reads the one and begins the other, before anything takes long. `None` where neither is asked for.
    pub(crate) fn open(
        args: &SessionArgs,
        artifact: &Artifact,
        spec: &ModelSpec,
        chat: bool,
    ) -> anyhow::Result<Option<Saved>> {
        let SessionArgs { session, save_session } = args;
        if session.is_none() && save_session.is_none() {
            return Ok(None);
        }
        if session.is_some() && chat {
            let reason = "goes on with plain text: a turn after another needs both messages in one template";
            return Err(UsageError::new("--session", reason).into());
        }
        let open = |path: &PathBuf| SessionFile::open(path).with_context(|| path.display().to_string());
        let before = session.as_ref().map(open).transpose()?;
        let after = save_session.as_deref().map(OutputFile::create).transpose()?;
        let identity = ModelIdentity::new(artifact, spec);
        Ok(Some(Saved { args: args.clone(), before, after, identity }))
    }

    /// The tokens before the prompt.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        self.before.as_ref().map_or(&[], SessionFile::tokens)
    }

    /// The session that the prompt is appended to.
    pub(crate) fn restore<'m>(&self, loaded: &'m mut Loaded) -> anyhow::Result<Session<'m>> {
        let Some(file) = &self.before else { return Ok(Session::new(&mut *loaded.forward, &loaded.pool)) };
        let path = || self.args.session.as_ref().map_or_else(String::new, |path| path.display().to_string());
        file.restore(&mut *loaded.forward, &loaded.pool, &self.identity).with_context(path)
    }

    /// Saves the session. `completion` is what was generated; its last token was not evaluated, for nothing followed.
    pub(crate) fn keep(
        self,
        session: &mut Session<'_>,
        prompt: &[TokenId],
        completion: &[TokenId],
    ) -> anyhow::Result<()> {
        let Some(mut out) = self.after else { return Ok(()) };
        let before = self.before.as_ref().map_or(0, |file| file.tokens().len()) + prompt.len();
        let evaluated = session.len().saturating_sub(before);
        if let Some(rest) = completion.get(evaluated..).filter(|rest| !rest.is_empty()) {
            session.append(rest)?;
        }
        let path =
            || self.args.save_session.as_ref().map_or_else(String::new, |path| path.display().to_string());
        session.save(&self.identity, &mut out).with_context(path)?;
        out.finish()
    }
}
