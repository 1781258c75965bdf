<?php
// Asks for a token on a kept connection for each line of its input, and prints it in a line.
$claims = ["sub" => "php", "aud" => "relying-party", "nonce" => "nonce"];
$curl = curl_init("http://localhost/sign");
curl_setopt_array($curl, [
    CURLOPT_UNIX_SOCKET_PATH => $argv[1],
    CURLOPT_POSTFIELDS => json_encode(["claims" => $claims, "lifetimeSeconds" => 300]),
    CURLOPT_RETURNTRANSFER => true,
]);
while (fgets(STDIN) !== false) echo curl_exec($curl), "\n";
