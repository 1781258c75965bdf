import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

// @ts-expect-error A guard might not have checked the request.
express().get("/", (request, response) => response.json(bearer.authOf(request).claims.sub));
// @ts-expect-error
fastify().get("/", (request) => bearer.authOf(request).claims.sub);
// @ts-expect-error
new Hono().get("/", (context) => context.json(bearer.authOf(context).claims.sub));
