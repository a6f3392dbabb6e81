//! Encryption of the data folder.

use std::time::{Duration, Instant};

use store::{Privacy, Secret};

use super::Chat;

impl Chat {
    /// Encrypts everything, and waits until that is done.
    pub fn protect(&mut self, passphrase: &str) {
        self.passphrase = Some(passphrase.to_owned().into());
        let passphrase = passphrase.to_owned().into();
        let secret = Secret::Passphrase { passphrase };
        self.engine().protect(secret).expect("encrypted");
        self.wait_for_privacy(Privacy::On);
    }

    /// Decrypts everything, and waits until that is done.
    pub fn unprotect(&mut self) {
        self.engine().unprotect().expect("decrypted");
        self.wait_for_privacy(Privacy::Off);
        self.passphrase = None;
    }

    fn wait_for_privacy(&self, wanted: Privacy) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.engine().privacy().expect("state").privacy != wanted {
            assert!(Instant::now() < deadline, "it never becomes {wanted:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
