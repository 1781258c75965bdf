import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;

class Sign {
  public static void main(String[] args) throws Exception {
    var body = "{\"claims\": {\"sub\": \"alice\", \"aud\": \"my-api\"}, \"lifetimeSeconds\": 300}".getBytes("UTF-8");
    var head = "POST /sign HTTP/1.0\r\nContent-Length: " + body.length + "\r\n\r\n";
    try (var socket = SocketChannel.open(UnixDomainSocketAddress.of("/run/jwksd/sign.sock"))) {
      var out = Channels.newOutputStream(socket);
      out.write(head.getBytes("UTF-8"));
      out.write(body);
      var reply = new String(Channels.newInputStream(socket).readAllBytes(), "UTF-8").split("\r\n\r\n", 2);
      if (!reply[0].contains(" 200 ")) throw new IllegalStateException(reply[1]);
      System.out.println(reply[1]);
    }
  }
}
