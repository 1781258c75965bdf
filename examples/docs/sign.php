<?php
$request = ["claims" => ["sub" => "alice", "aud" => "my-api"], "lifetimeSeconds" => 300];
$curl = curl_init("http://localhost/sign");
curl_setopt_array($curl, [
    CURLOPT_UNIX_SOCKET_PATH => "/run/jwksd/sign.sock",
    CURLOPT_POSTFIELDS => json_encode($request),
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_TIMEOUT => 10,
]);
$token = curl_exec($curl);
if (curl_getinfo($curl, CURLINFO_RESPONSE_CODE) !== 200) throw new RuntimeException($token ?: curl_error($curl));
echo $token;
