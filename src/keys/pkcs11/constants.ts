// Numbers from the standard. pkcs11js has them too, but only the child process loads pkcs11js. See PKCS#11 3.0,
// appendix B, and the OASIS header pkcs11t.h.

export const CKA = {
  CLASS: 0x000,
  TOKEN: 0x001,
  PRIVATE: 0x002,
  LABEL: 0x003,
  KEY_TYPE: 0x100,
  ID: 0x102,
  SENSITIVE: 0x103,
  ENCRYPT: 0x104,
  DECRYPT: 0x105,
  WRAP: 0x106,
  UNWRAP: 0x107,
  SIGN: 0x108,
  VERIFY: 0x10a,
  DERIVE: 0x10c,
  EXTRACTABLE: 0x162,
  EC_PARAMS: 0x180,
  EC_POINT: 0x181,
  ALWAYS_AUTHENTICATE: 0x202,
} as const;

export const CKO = { PUBLIC_KEY: 2, PRIVATE_KEY: 3 } as const;
export const CKK = { EC: 3 } as const;
export const CKM = { EC_KEY_PAIR_GEN: 0x1040, ECDSA: 0x1041 } as const;
export const CKU = { USER: 1 } as const;

export const CKF = {
  OS_LOCKING_OK: 0x2,
  RW_SESSION: 0x2,
  SERIAL_SESSION: 0x4,
  LOGIN_REQUIRED: 0x4,
  USER_PIN_FINAL_TRY: 0x20000,
  USER_PIN_LOCKED: 0x40000,
} as const;

/** DER encoding of P-256's object identifier, as in CKA_EC_PARAMS. @see RFC 5480 section 2.1.1.1 */
export const p256Params: Uint8Array = Uint8Array.of(0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07);
