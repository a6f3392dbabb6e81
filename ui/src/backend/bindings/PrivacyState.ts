export type PrivacyState = { privacy: 'off' | 'turning_on' | 'on' | 'turning_off'; unlocks: 'passphrase' | 'keychain' | null; blocks_left: number };
