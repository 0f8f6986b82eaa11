//! A sink that keeps everything, and the answers that its events amount to.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use kipp::TokenId;
use kipp::engine::{Event, FinishReason, RequestFailure, RequestStats, Sink, TokenScore};

/// What a request was told; clones share it.
#[derive(Clone, Default)]
pub(super) struct Told {
    events: Arc<Mutex<Vec<Event>>>,
    /// Events after which it wants no more.
    pub(super) patience: Option<usize>,
}

impl Sink for Told {
    fn deliver(&mut self, event: Event) -> ControlFlow<()> {
        let mut events = self.events.lock().unwrap();
        events.push(event);
        match self.patience {
            Some(patience) if events.len() >= patience => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// One choice as it was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) tokens: Vec<TokenId>,
    pub(super) text: String,
    pub(super) scores: Vec<TokenScore>,
    pub(super) finish: Option<FinishReason>,
    pub(super) stats: RequestStats,
}

/// A whole request as it was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) cached_tokens: Option<usize>,
    pub(super) prompt: Option<Vec<TokenScore>>,
    pub(super) choices: Vec<Answer>,
    pub(super) failure: Option<RequestFailure>,
}

impl Told {
    pub(super) fn len(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// Adds up the events, whose order is checked.
    pub(super) fn account(&self, choices: u32) -> Account {
        let mut account =
            Account { choices: vec![Answer::default(); choices as usize], ..Account::default() };
        for event in self.events.lock().unwrap().iter().cloned() {
            assert_eq!(account.failure, None, "nothing follows a failure");
            match event {
                Event::Started { cached_tokens, .. } => {
                    assert_eq!(account.cached_tokens.replace(cached_tokens), None, "started twice");
                }
                Event::Prompt { scores } => {
                    assert!(account.choices.iter().all(|answer| answer.tokens.is_empty()));
                    assert_eq!(account.prompt.replace(scores), None, "the prompt is told twice");
                }
                Event::Tokens { choice, tokens } => {
                    assert!(account.cached_tokens.is_some() && !tokens.is_empty());
                    let answer = &mut account.choices[choice as usize];
                    assert_eq!(answer.finish, None, "tokens after the end");
                    for token in tokens {
                        answer.tokens.push(token.id);
                        answer.text += &token.text;
                        answer.scores.extend(token.score);
                    }
                }
                Event::Finished { choice, reason, text, stats } => {
                    let answer = &mut account.choices[choice as usize];
                    assert_eq!(answer.finish.replace(reason), None, "ended twice");
                    answer.text += &text;
                    answer.stats = stats;
                    assert_eq!(stats.completion_tokens, answer.tokens.len());
                    assert_eq!(stats.cached_tokens, account.cached_tokens.unwrap_or(0));
                }
                Event::Failed(failure) => account.failure = Some(failure),
            }
        }
        account
    }

    /// The only choice.
    pub(super) fn answer(&self) -> Answer {
        let account = self.account(1);
        assert_eq!(account.failure, None);
        account.choices.into_iter().next().unwrap()
    }
}
