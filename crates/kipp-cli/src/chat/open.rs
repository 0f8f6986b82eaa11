//! From flags to a chat that is ready for its first turn.

use std::time::Instant;

use kipp::chat::{Conversation, Message, Role};
use kipp::engine::{EngineOptions, Marks};

use super::evaluator::Evaluator;
use super::reuse::Reuse;
use super::settings::Settings;
use super::{Chat, ChatArgs};
use crate::args;
use crate::load::{self, Loaded, Loading};
use crate::speculation::{Drafters, SpecKind, Target};
use crate::{open, prompt};

impl Chat {
    /// Loads the model, with room for one conversation as long as the context.
    pub(super) fn open(args: &ChatArgs) -> anyhow::Result<Chat> {
        let stops = args.sampling.stops()?;
        let drafting = args.speculation.choice(SpecKind::Off)?;
        let started = Instant::now();
        let artifact = open::artifact(&args.model.model)?;
        let spec = load::spec(&artifact, &args.context.attention)?;
        // Asked before the weights take their share of the free memory.
        let context = load::context_limit(&artifact, &spec, &args.context)?;
        context.tell();
        let kv = args.context.attention.kv;
        let mut options = args.step.options(kv, context.tokens);
        options.kv_blocks = args.pool.blocks(&spec, kv, context.tokens)?;
        let loading = Loading::start(&artifact, &spec, &args.backend);
        let files = artifact.tokenizer_files();
        let tokenizer = open::tokenizer(files)?.with_rows(spec.vocab_size)?;
        let format = prompt::format(files, &tokenizer)?;
        let settings = Settings::new(args, stops, args::chat_sampling(&artifact))?;
        let Loaded { forward, .. } =
            loading.with_room(&args.backend, options).map_err(|error| args.pool.explain(error))?;
        let target = Target { tokenizer: &tokenizer, options, context_tokens: context.tokens };
        let drafters = Drafters::open(&args.speculation, &drafting, &args.backend, target)?;
        let options = EngineOptions {
            step_tokens: args.step.step_tokens,
            end_tokens: artifact.stop_tokens().to_vec(),
            tokenizer: Some(tokenizer.clone()),
            ..EngineOptions::new(context.tokens)
        };
        Ok(Chat {
            name: artifact.id(),
            marks: Marks::of(&tokenizer),
            end_tokens: options.end_tokens.clone(),
            context_tokens: context.tokens,
            load_time: started.elapsed(),
            evaluator: Evaluator::open(forward, options, drafters)?,
            reuse: Reuse::new(&tokenizer),
            conversation: beginning(args.system.clone(), args.no_think.then_some(false)),
            settings,
            n_answers: 0,
            last: None,
            format,
            tokenizer,
        })
    }
}

/// A conversation before its first turn.
pub(super) fn beginning(system: Option<String>, enable_thinking: Option<bool>) -> Conversation {
    let messages = system.into_iter().map(|text| Message::new(Role::System, text)).collect();
    let mut conversation = Conversation::new(messages);
    conversation.enable_thinking = enable_thinking;
    conversation
}
