import { type OxlintConfig, defineConfig } from "oxlint";
import { forbiddenImports, modules } from "./modules.ts";

const wholeJose = {
  regex: "^jose$",
  allowTypeImports: true,
  message: 'import values from a part, such as "jose/key/import": all of jose takes each command 20 ms longer to start',
};

const noImports = (regex: string, message: string): OxlintConfig["rules"] => ({
  "no-restricted-imports": ["error", { patterns: [{ regex, message }, wholeJose] }],
});

export default defineConfig({
  plugins: ["eslint", "typescript", "unicorn", "oxc", "import", "promise", "node"],
  categories: { correctness: "error", suspicious: "error", perf: "error" },
  env: { node: true, es2024: true },
  ignorePatterns: ["dist/**"],
  rules: {
    "no-await-in-loop": "off",
    "no-shadow": "off",
    "no-underscore-dangle": "off",
    // A constructor that narrows the type of an argument counts as useless.
    "no-useless-constructor": "off",
    "import/no-unassigned-import": "off",
    "import/no-named-as-default-member": "off",
    "promise/always-return": "off",
    "unicorn/no-array-sort": "off",
    // It takes threads for windows.
    "unicorn/require-post-message-target-origin": "off",
    "import/no-cycle": "error",
    "typescript/no-explicit-any": "error",
    "typescript/no-non-null-assertion": "error",
    "typescript/consistent-type-imports": "error",
    "typescript/no-unsafe-type-assertion": "off",
    eqeqeq: "error",
    "no-console": "off",
  },
  overrides: [
    // Express 5 waits for them.
    { files: ["examples/**", "test/**"], rules: { "oxc/no-async-endpoint-handlers": "off" } },
    {
      files: ["test/**", "src/testing/**", "examples/docs/orders-test.*"],
      rules: { "typescript/no-floating-promises": "off" },
    },
    ...Object.entries(modules).map(([name, module]) => ({
      files: [`src/${name}/*.ts`],
      rules: noImports(forbiddenImports(name, module), `src/${name} must not import this; see modules.ts`),
    })),
    // One file for each kind of runtime.
    {
      files: ["src/keys/crypto/node.ts"],
      rules: {
        "no-restricted-imports": [
          "error",
          {
            patterns: [
              {
                group: ["node:*", "!node:buffer", "!node:crypto"],
                message: "import only node:buffer and node:crypto from Node",
              },
              wholeJose,
            ],
          },
        ],
      },
    },
    {
      files: ["src/index.ts"],
      rules: noImports("^node:|^\\./(?:cli|node|service|keys/kms|keys/pkcs11)/", "the core runs anywhere"),
    },
  ],
});
