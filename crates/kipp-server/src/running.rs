//! A request on its way through the engine: submitted, its events awaited, and cancelled when nobody waits any more.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use kipp::engine::{Event, Request, RequestError, RequestId, Sink, UNDELIVERED_EVENTS};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::app::{App, Phase, TokenCounts};
use crate::error::ApiError;

/// An event, and which prompt of the request it belongs to.
type Told = (usize, Event);

/// Takes events without ever waiting: a reader that is too far behind, or gone, ends its request.
struct ChannelSink {
    prompt: usize,
    sender: Sender<Told>,
}

impl Sink for ChannelSink {
    fn deliver(&mut self, event: Event) -> ControlFlow<()> {
        match self.sender.try_send((self.prompt, event)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// What has come of a request so far, for the log.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    prompt_tokens: AtomicUsize,
    cached_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
    failed: AtomicBool,
}

impl Tally {
    /// Tokens so far.
    pub(crate) fn counts(&self) -> TokenCounts {
        TokenCounts {
            prompt: self.prompt_tokens.load(Ordering::Relaxed),
            cached: self.cached_tokens.load(Ordering::Relaxed),
            completion: self.completion_tokens.load(Ordering::Relaxed),
        }
    }

    /// Whether an error ended the answer.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What runs for one HTTP request. Dropping it cancels what has not ended.
pub(crate) struct Running {
    app: Arc<App>,
    ids: Vec<RequestId>,
    /// Choices of each prompt that have not ended.
    unfinished: Vec<u32>,
    events: Receiver<Told>,
    phase: watch::Receiver<Phase>,
    submitted: Instant,
    /// When each choice of each prompt last went on.
    last_token: Vec<Vec<Option<Instant>>>,
    tally: Arc<Tally>,
}

impl Running {
    /// Submits a request for each prompt; all of them or none. `prompt_field` names them in errors.
    pub(crate) fn start(
        app: &Arc<App>,
        requests: Vec<Request>,
        prompt_field: &str,
    ) -> Result<Running, ApiError> {
        if app.phase() != Phase::Serving {
            return Err(ApiError::draining());
        }
        // Later is never better for a list that the queue cannot hold.
        let (prompts, most) = (requests.len(), app.engine.max_waiting());
        if prompts > most.max(1) {
            let reason = format!("holds {prompts} prompts, of which at most {most} may wait");
            return Err(ApiError::field(prompt_field, reason));
        }
        let unfinished: Vec<u32> = requests.iter().map(|request| request.choices).collect();
        let choices = unfinished.iter().copied().max().unwrap_or(1) as usize;
        let (sender, events) = channel(UNDELIVERED_EVENTS.saturating_mul(choices.max(requests.len())));
        let mut running = Running {
            app: Arc::clone(app),
            ids: Vec::new(),
            last_token: unfinished.iter().map(|choices| vec![None; *choices as usize]).collect(),
            unfinished,
            events,
            phase: app.phase.subscribe(),
            submitted: Instant::now(),
            tally: Arc::default(),
        };
        let prompt_tokens = requests.iter().map(|request| request.prompt.len()).sum();
        running.tally.prompt_tokens.store(prompt_tokens, Ordering::Relaxed);
        for (prompt, request) in requests.into_iter().enumerate() {
            // A chat may take what is left; one token must be left.
            let (prompt_tokens, context_tokens) = (request.prompt.len(), app.info.context_tokens);
            let submitted = match prompt_tokens >= context_tokens {
                true => Err(RequestError::PromptTooLong { prompt_tokens, context_tokens }),
                false => app.engine.submit(request, Box::new(ChannelSink { prompt, sender: sender.clone() })),
            };
            // An error drops those before it, which cancels them.
            running.ids.push(submitted.map_err(|error| ApiError::of_request(error, prompt_field))?);
        }
        Ok(running)
    }

    /// What has come of it, also when it is over.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Result<Told, ApiError>> {
        let next = self.next_event().await;
        if matches!(next, Some(Err(_))) {
            self.tally.failed.store(true, Ordering::Relaxed);
        }
        next
    }

    async fn next_event(&mut self) -> Option<Result<Told, ApiError>> {
        if self.unfinished.iter().all(|choices| *choices == 0) {
            return None;
        }
        let told = tokio::select! {
            biased;
            told = self.events.recv() => told,
            _ = self.phase.wait_for(|phase| *phase == Phase::Ending) => {
                return Some(Err(ApiError::draining()));
            }
        };
        Some(match told {
            Some((_, Event::Failed(failure))) => Err(failure.into()),
            Some((prompt, event)) => {
                self.measure(prompt, &event);
                Ok((prompt, event))
            }
            None => Err(ApiError::internal("the answer was read too slowly and was ended")),
        })
    }

    fn measure(&mut self, prompt: usize, event: &Event) {
        match event {
            Event::Started { cached_tokens, .. } => {
                self.tally.cached_tokens.fetch_add(*cached_tokens, Ordering::Relaxed);
            }
            Event::Tokens { choice, tokens } => {
                self.tally.completion_tokens.fetch_add(tokens.len(), Ordering::Relaxed);
                let now = Instant::now();
                let last = self.last_token.get_mut(prompt).and_then(|all| all.get_mut(*choice as usize));
                match last.and_then(|last| last.replace(now)) {
                    // Those that come together have nothing between them.
                    Some(last) => {
                        let each = now.saturating_duration_since(last) / tokens.len().max(1) as u32;
                        tokens.iter().for_each(|_| self.app.metrics.next_token(each));
                    }
                    None => self.app.metrics.first_token(now.saturating_duration_since(self.submitted)),
                }
            }
            Event::Finished { stats, .. } => {
                if let Some(left) = self.unfinished.get_mut(prompt) {
                    *left = left.saturating_sub(1);
                }
                self.app.metrics.finished(stats);
            }
            _ => {}
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (id, unfinished) in self.ids.iter().zip(&self.unfinished) {
            if *unfinished > 0 {
                self.app.engine.cancel(*id);
            }
        }
    }
}
