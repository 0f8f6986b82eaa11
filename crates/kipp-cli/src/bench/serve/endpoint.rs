//! An OpenAI endpoint at a URL: checked before it is measured, then asked for streams.

use serde_json::{Value, json};

use super::answer::{Answer, Ask, Client, Fault, Target};
use super::events;
use super::http::{Connection, HttpError, HttpRequest, Patience, shown};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// `host:port`.
    pub(super) authority: String,
    /// Before `/v1`; without a slash at its end.
    prefix: String,
}

/// Why nothing can be measured there.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndpointError {
    #[error("{0}: must be http://HOST:PORT, with the path before /v1 if there is one")]
    Url(String),
    #[error("{0}: https is not spoken here; measure the server itself, behind what adds TLS")]
    Https(String),
    #[error("http://{authority}: {source}")]
    Http { authority: String, source: HttpError },
    #[error("http://{authority} wants a key: --api-key KEY")]
    Key { authority: String },
    #[error(
        "http://{authority} is no OpenAI endpoint that is ready: GET {path} was answered {status}: {body}"
    )]
    NoOpenAi { authority: String, path: String, status: u16, body: String },
    #[error("http://{authority} has no model {name}; it has {known}")]
    Model { authority: String, name: String, known: String },
}

/// How it is asked.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// `/v1/chat/completions` instead of `/v1/completions`.
    pub(super) chat: bool,
    /// Only fields that OpenAI's own interface has.
    pub(super) openai_only: bool,
    pub(super) temperature: f64,
    pub(super) key: Option<String>,
    pub(super) patience: Patience,
}

/// A server that answered.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    /// The name that requests carry.
    pub(super) model: String,
    /// What the server says of whose model it is: `kipp`, `llamacpp`, `vllm`.
    pub(super) owner: String,
    manner: Manner,
}

impl Url {
    /// Whether a text is meant to be a URL, rather than the name of a file.
    pub(super) fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    pub(super) fn parse(text: &str) -> Result<Url, EndpointError> {
        let bad = || EndpointError::Url(shown(text));
        if text.starts_with("https://") {
            return Err(EndpointError::Https(shown(text)));
        }
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        if rest.chars().any(|c| !c.is_ascii_graphic() || "?#@\\".contains(c)) {
            return Err(bad());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // A colon within the brackets of an IPv6 address is none before a port.
        let behind_host = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
        let authority = match behind_host.rsplit_once(':') {
            Some((_, port)) => {
                port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad)?;
                authority.to_owned()
            }
            None => format!("{authority}:80"),
        };
        if authority.starts_with(':') {
            return Err(bad());
        }
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("v1").map_or(path, |before| before.trim_end_matches('/'));
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Url { authority, prefix })
    }
}

impl Endpoint {
    /// Asks the server which models it has. `model` is the one to take; the first where nobody says.
    pub(super) fn open(url: Url, model: Option<&str>, manner: &Manner) -> Result<Endpoint, EndpointError> {
        let path = format!("{}/v1/models", url.prefix);
        let (status, body) = get(&url, &path, manner)?;
        let authority = url.authority.clone();
        if matches!(status, 401 | 403) {
            return Err(EndpointError::Key { authority });
        }
        let document: Option<Value> = serde_json::from_slice(&body).ok().filter(|_| status == 200);
        let entries = document.as_ref().and_then(|document| document.get("data")?.as_array());
        let text = |entry: &Value, key: &str| Some(entry.get(key)?.as_str()?.to_owned());
        let known: Vec<(String, Option<String>)> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((text(entry, "id")?, text(entry, "owned_by"))))
            .collect();
        let found = known.iter().find(|(id, _)| model.is_none_or(|name| name == id));
        match (found, model) {
            (Some((id, owner)), _) => {
                let owner = owner.clone().unwrap_or_else(|| authority.clone());
                Ok(Endpoint { url, model: id.clone(), owner, manner: manner.clone() })
            }
            (None, Some(name)) if !known.is_empty() => {
                let known = known.iter().map(|(id, _)| shown(id)).collect::<Vec<_>>().join(", ");
                Err(EndpointError::Model { authority, name: name.to_owned(), known })
            }
            _ => {
                let body = shown(&String::from_utf8_lossy(&body));
                Err(EndpointError::NoOpenAi { authority, path, status, body })
            }
        }
    }

    /// A number of `/metrics`, where the server has it.
    pub(super) fn metric(&self, name: &str) -> Option<f64> {
        let (_, body) = get(&self.url, &format!("{}/metrics", self.url.prefix), &self.manner).ok()?;
        let text = String::from_utf8_lossy(&body).into_owned();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    fn path(&self) -> String {
        let path = if self.manner.chat { "/v1/chat/completions" } else { "/v1/completions" };
        format!("{}{path}", self.url.prefix)
    }

    fn body(&self, ask: &Ask) -> String {
        let mut body = json!({
            "model": self.model,
            "max_tokens": ask.tokens,
            "temperature": self.manner.temperature,
            "seed": ask.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.manner.chat {
            true => body["messages"] = json!([{"role": "user", "content": ask.prompt}]),
            false => body["prompt"] = json!(ask.prompt),
        }
        if ask.choices > 1 {
            body["n"] = json!(ask.choices);
        }
        if !self.manner.openai_only {
            // Answers of one length, and one sampler, whatever a server's own defaults are.
            body["ignore_eos"] = json!(true);
            body["top_p"] = json!(1.0);
            body["top_k"] = json!(0);
            body["min_p"] = json!(0.0);
        }
        body.to_string()
    }
}

fn get(url: &Url, path: &str, manner: &Manner) -> Result<(u16, Vec<u8>), EndpointError> {
    let asked = || {
        let mut connection = Connection::open(&url.authority, manner.patience)?;
        connection.send(&HttpRequest { method: "GET", path, key: manner.key.as_deref(), body: "" })?;
        let head = connection.head()?;
        Ok((head.status, connection.body(&head).rest()?))
    };
    asked().map_err(|source| EndpointError::Http { authority: url.authority.clone(), source })
}

impl Target for Endpoint {
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(HttpClient { endpoint: self, connection: None })
    }
}

/// A client with a connection that it keeps.
struct HttpClient<'a> {
    endpoint: &'a Endpoint,
    connection: Option<Connection>,
}

impl HttpClient<'_> {
    fn stream(&mut self, ask: &Ask) -> Result<Answer, Fault> {
        let Endpoint { url, manner, .. } = self.endpoint;
        let (path, body) = (self.endpoint.path(), self.endpoint.body(ask));
        let request = HttpRequest { method: "POST", path: &path, key: manner.key.as_deref(), body: &body };
        let send = |mut connection: Connection| {
            connection.send(&request)?;
            let head = connection.head()?;
            Ok::<_, HttpError>((connection, head))
        };
        let kept = self.connection.take();
        let (mut connection, head) = match kept.map(send) {
            Some(Ok(answered)) => answered,
            // The server may have closed it since.
            Some(Err(HttpError::Broken(_))) | None => {
                send(Connection::open(&url.authority, manner.patience)?)?
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let mut body = connection.body(&head);
        if head.status != 200 {
            let text = body.rest().unwrap_or_default();
            let document: Option<Value> = serde_json::from_slice(&text).ok();
            let error = document.as_ref().and_then(|document| document.get("error"));
            let message = error.map_or_else(|| String::from_utf8_lossy(&text).into_owned(), events::message);
            if head.stays_open {
                self.connection = Some(connection);
            }
            return Err(Fault::Status { status: head.status, message: shown(&message) });
        }
        let answer = events::read(&mut body);
        drop(body);
        if head.stays_open && answer.fault.is_none() {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}

impl Client for HttpClient<'_> {
    fn ask(&mut self, ask: &Ask) -> Answer {
        self.stream(ask).unwrap_or_else(|fault| Answer { fault: Some(fault), ..Answer::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_a_port_and_what_is_before_v1() {
        let parsed = |text: &str| Url::parse(text).map(|url| (url.authority, url.prefix)).unwrap();
        let url = |authority: &str, prefix: &str| (authority.to_owned(), prefix.to_owned());
        assert_eq!(parsed("http://127.0.0.1:8000"), url("127.0.0.1:8000", ""));
        assert_eq!(parsed("http://localhost/"), url("localhost:80", ""));
        assert_eq!(parsed("http://[::1]:9/v1/"), url("[::1]:9", ""));
        assert_eq!(parsed("http://[::1]"), url("[::1]:80", ""));
        assert_eq!(parsed("http://h:1/a/b/v1"), url("h:1", "/a/b"));
        for bad in
            ["ftp://h", "http://", "http://:80", "http://h:0", "http://h:99999", "http://h:x", "http://a b"]
        {
            assert!(matches!(Url::parse(bad), Err(EndpointError::Url(_))), "{bad}");
        }
        for bad in ["http://u@h", "http://h/?x", "http://h\r\nX: y", "http://h\u{e9}"] {
            assert!(matches!(Url::parse(bad), Err(EndpointError::Url(_))), "{bad}");
        }
        assert!(matches!(Url::parse("https://h"), Err(EndpointError::Https(_))));
        assert!(Url::is_meant("http://h") && !Url::is_meant("models/x.gguf"));
    }
}
