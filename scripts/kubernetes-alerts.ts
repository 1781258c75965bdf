// Prints ops/alerts.yml as a resource for the Prometheus operator: ops/kubernetes/alerts.yaml.

import { readFileSync } from "node:fs";

const rules = readFileSync(new URL("../ops/alerts.yml", import.meta.url), "utf8");
const indented = rules.slice(rules.indexOf("groups:")).replaceAll(/^(?=.)/gm, "  ");
process.stdout.write(`# Generated from ops/alerts.yml: node scripts/kubernetes-alerts.ts > ops/kubernetes/alerts.yaml
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: jwksd
  labels: { app.kubernetes.io/name: jwksd }
spec:
${indented}`);
