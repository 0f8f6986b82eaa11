//! The page's file over HTTP: its headers, its tag, and that it needs no key. What it does in a browser is CI's step `page`.

use crate::client;
use crate::served::{served, served_with};

#[test]
fn the_page_is_one_document_under_a_strict_policy() {
    let server = served();
    let answer = server.get("/");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let text = answer.text();
    assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
}

#[test]
fn a_browser_that_has_the_page_gets_no_second_one() {
    let server = served();
    let tag = server.get("/").header("etag").unwrap().to_owned();
    let again = client::request(server.port, "GET", "/", &[("If-None-Match", &tag)], None);
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag.as_str())));
    let other = client::request(server.port, "GET", "/", &[("If-None-Match", "\"other\"")], None);
    assert_eq!(other.status, 200);
}

#[test]
fn the_page_needs_no_key_and_what_it_calls_does() {
    let server = served_with(|settings| settings.info.keys = vec!["sk-one".to_owned()]);
    assert_eq!(server.get("/").status, 200);
    for path in ["/metrics", "/v1/loads", "/v1/models", "//", "/page"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}
