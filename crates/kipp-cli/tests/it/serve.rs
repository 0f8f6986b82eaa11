//! `kipp serve` as a process: its address, its key, its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{refusal, root};

/// A server that is killed when its test ends.
pub(crate) struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    pub(crate) fn start(args: &[&str]) -> Serving {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kipp"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KIPP_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(root())
            .args(["serve", "--port", "0", "--threads", "1", "--ctx", "512"])
            .args(args);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Serving { process, address }
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Status and body of a request.
    fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_serves_the_embedded_model_and_ends_well_on_sigterm() {
    let mut serving = Serving::start(&["--api-key", "sk-1", "--served-model-name", "tiny"]);
    assert_eq!(serving.ask("GET", "/health", "", "").0, 200);
    assert_eq!(serving.ask("GET", "/v1/models", "", "").0, 401);
    let key = "Authorization: Bearer sk-1\r\n";
    let (status, models) = serving.ask("GET", "/v1/models", key, "");
    assert!(
        status == 200 && models.contains("\"tiny\"") && models.contains("\"max_model_len\":512"),
        "{models}"
    );
    let prompt = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 5}";
    let (status, answer) = serving.ask("POST", "/v1/completions", key, prompt);
    assert!(status == 200 && answer.contains("\"text_completion\""), "{answer}");

    let id = serving.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = serving.process.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn flags_that_cannot_be_are_wrong_usage() {
    assert!(refusal(&["serve", "--backend", "oracle"], 2).contains("--backend"));
    assert!(refusal(&["serve", "--api-key", "a b"], 2).contains("--api-key"));
    assert!(refusal(&["serve", "--host", "no such host"], 2).contains("--host"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "\n\n").unwrap();
    let said = refusal(&["serve", "--api-key-file", file.to_str().unwrap()], 1);
    assert!(said.contains("no key"), "{said}");
}
