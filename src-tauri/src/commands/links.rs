//! Links open in the system's browser, on the person's click alone, and only web addresses.

use tauri::Url;

use crate::api_error::ApiError;

#[tauri::command(async)]
pub(crate) fn open_link(url: String) -> Result<(), ApiError> {
    let address = web_address(&url)?;
    open::that_detached(address.as_str())
        .map_err(|error| ApiError::new("internal", format!("no browser could be started: {error}")))
}

/// Programs register all kinds of schemes, and a reply is untrusted: anything but the web is refused.
fn web_address(url: &str) -> Result<Url, ApiError> {
    match Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => Ok(parsed),
        _ => Err(ApiError::invalid(
            "only web addresses (http, https) can be opened",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::web_address;

    #[test]
    fn only_web_addresses_are_opened() {
        assert!(web_address("https://example.org/a?b=c").is_ok());
        for refused in [
            "file:///etc/passwd",
            "javascript:alert(1)",
            "smb://host/share",
            "-x",
            "",
            "mailto:a@example.org",
        ] {
            assert_eq!(
                web_address(refused).map_err(|error| error.code),
                Err("invalid_argument".to_owned()),
                "{refused}"
            );
        }
    }
}
