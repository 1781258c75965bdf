const permissive = new Set(["0BSD", "Apache-2.0", "BlueOak-1.0.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"]);

/** Returns whether a license, by its SPDX identifier, only requires its notice to be kept. */
export const isPermissive = (license: string): boolean => permissive.has(license);
