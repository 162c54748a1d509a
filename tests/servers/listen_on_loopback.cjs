// SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
//
// SPDX-License-Identifier: Apache-2.0

// Loaded by `node --require`. Makes the program listen only on the loopback interface, on the port in the environment
// variable PORT (0: any free one), and print `PORT <n>` on stdout once it listens.

const net = require("node:net");

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...given) {
  const callback = given.findLast((argument) => typeof argument === "function");
  this.once("listening", () => console.log(`PORT ${this.address().port}`));
  const where = { host: "127.0.0.1", port: Number(process.env.PORT) };
  return callback ? listen.call(this, where, callback) : listen.call(this, where);
};
