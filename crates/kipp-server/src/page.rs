//! The page at `/`: a chat and a look at the engine, in one document that asks nobody else for anything. It is written by
//! hand in `page/` and put together at compile time; what it may do in a browser is said by its headers.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use sha2::{Digest, Sha256};

const HEAD: &str = include_str!("page/head.html");
const STYLE: &str =
    concat!(include_str!("page/page.css"), include_str!("page/chat.css"), include_str!("page/panel.css"));
const BODY: &str = include_str!("page/body.html");
/// One module: the pieces share their names, and none of them is the window's.
const SCRIPT: &str = concat!(
    include_str!("page/dom.js"),
    include_str!("page/markdown.js"),
    include_str!("page/client.js"),
    include_str!("page/settings.js"),
    include_str!("page/turns.js"),
    include_str!("page/panel.js"),
    include_str!("page/main.js"),
);

/// The document and the headers that depend on it.
struct Page {
    document: String,
    policy: String,
    tag: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let document = format!(
        "{HEAD}<style>{STYLE}</style>\n</head>\n{BODY}<script type=\"module\">{SCRIPT}</script>\n</body>\n</html>\n"
    );
    Page { policy: policy(), tag: format!("\"{}\"", digest(&document)), document }
});

/// Only the script and the style that we wrote run, only this server is called, and text never becomes markup: whatever a
/// model writes, it stays text.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
        digest(SCRIPT),
        digest(STYLE)
    )
}

/// SHA-256 in base64 (RFC 4648, section 4), as a policy names scripts.
fn digest(text: &str) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for bytes in Sha256::digest(text.as_bytes()).chunks(3) {
        let byte = |n: usize| u32::from(bytes.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * n)) as usize & 63];
            // A byte more gives a sign more.
            out.push(if n <= bytes.len() { char::from(sign) } else { '=' });
        }
    }
    out
}

/// The page, or 304 where the browser has it.
pub(crate) async fn document(headers: HeaderMap) -> Response {
    let page = &*PAGE;
    let known = headers.get(IF_NONE_MATCH).is_some_and(|tags| is_named(tags.as_bytes(), page.tag.as_bytes()));
    let mut response = Response::new(if known { Body::empty() } else { Body::from(page.document.as_str()) });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [(ETAG, &page.tag), (CONTENT_SECURITY_POLICY, &page.policy)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        // Kept, but asked for each time: a newer program brings a newer page.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a list of tags names this one, weak or not, or all.
fn is_named(tags: &[u8], tag: &[u8]) -> bool {
    tags.split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_others() {
        // FIPS 180-2's example, in base64.
        assert_eq!(digest("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn tags_come_in_lists() {
        assert!(
            is_named(b"\"a\"", b"\"a\"") && is_named(b"\"b\", W/\"a\"", b"\"a\"") && is_named(b"*", b"\"a\"")
        );
        assert!(!is_named(b"\"ab\"", b"\"a\"") && !is_named(b"", b"\"a\""));
    }

    #[test]
    fn the_document_names_nobody_else_and_text_stays_text() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        let document = &PAGE.document;
        for word in [" src=", "@import", "url(", "<link rel=\"stylesheet", " style=", " onclick="] {
            assert!(!document.contains(word), "{word}");
        }
        // The name of SVG's elements is no address that anybody is asked at.
        assert_eq!(
            document.matches("http").count(),
            document.matches("http://www.w3.org/2000/svg").count() + document.matches("https?:").count()
        );
    }
}
