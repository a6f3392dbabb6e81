export type Secret = { "with": "passphrase", passphrase: string } | { "with": "keychain" };
