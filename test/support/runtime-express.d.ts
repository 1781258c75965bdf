// Express 5 brings no types of its own.
declare module "express";
