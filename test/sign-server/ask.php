<?php
// Asks for a token on a kept connection for each line of its input, and prints it in a line.
$curl = curl_init("http://localhost/sign");
curl_setopt_array($curl, [
    CURLOPT_UNIX_SOCKET_PATH => $argv[1],
    CURLOPT_POSTFIELDS => json_encode(["claims" => ["sub" => "php", "aud" => "my-api"], "lifetimeSeconds" => 300]),
    CURLOPT_RETURNTRANSFER => true,
]);
while (fgets(STDIN) !== false) echo curl_exec($curl), "\n";
